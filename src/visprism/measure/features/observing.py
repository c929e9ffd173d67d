"""Watched passes: batches go through a model, and what probes keep of each comes out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from visprism.anatomy import Anatomy, Images, batch_size, forward, watch
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather, rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.measure.batches import Batch, blocks_on_grid, image_shape
from visprism.measure.features.probe import Probe
from visprism.measure.features.taps import views

Extracts = dict[Any, Tensor]  # by block, or by attention: what a probe kept of it
Progress = Callable[[Iterable], Iterable]


@contextmanager
def watched(
    anatomy: Anatomy, probes: Sequence[Probe], compute: Compute
) -> Iterator[Callable[[Images], list[Extracts]]]:
    """Inside, a function that runs the model on images and gives what each probe keeps.

    Raises:
        InputError: if the model is in training mode, or no block has a feature map; on images,
            if a block gives no feature map or one that is not finite.
    """
    blocks_on_grid(anatomy)  # there are some
    # Not inference mode: what a model caches in it, it could never be differentiated through.
    with compute.borrow(anatomy.model), torch.no_grad(), ExitStack() as stack:
        seen = views(anatomy, probes, stack)

        def run(images: Images) -> list[Extracts]:
            for view in seen:
                view.kept.clear()
            with compute.autocast():
                forward(anatomy.model, images)
            of_probe: dict[int, Extracts] = {}
            for view in seen:
                extracts = view.extracts()
                for i, probe in enumerate(view.probes):
                    of_probe[id(probe)] = {thing: es[i] for thing, es in extracts.items()}
            if not all(
                torch.isfinite(e).all() for es in of_probe.values() for e in es.values()
            ):
                raise _not_finite(anatomy, images, compute)
            return [of_probe[id(probe)] for probe in probes]

        yield run


def shown(batches: Iterable[Batch], progress: Progress | None) -> Iterable[Batch]:
    """This process's share of the batches; the first process shows how far it is."""
    own = share(batches)
    return progress(own) if progress and rank() == 0 else own


# Several processes.


def together(probes: Sequence[Probe], images: int, largest: int) -> tuple[int, int]:
    """Give each process's probes the sums of all, added in the order of ranks: equal bits.

    Args:
        probes: that saw this process's batches.
        images: how many this process saw,
        largest: and in its largest batch; given back for all processes.

    Raises:
        InputError: if no process saw any.
    """
    sums, counts, sizes = zip(*gather(([p.sums for p in probes], images, largest)), strict=True)
    for probe, its in zip(probes, zip(*sums, strict=True), strict=True):
        probe.sums = {}
        for own in its:
            probe.add(own)
    if not any(counts):
        raise InputError("no images were observed; is the data empty?")
    return sum(counts), max(sizes)


def measured(
    provenance: Provenance | None,
    anatomy: Anatomy,
    compute: Compute,
    *,
    images: int,
    largest: int,
) -> Provenance:
    """What is known of the model and the data, with the facts of the pass."""
    return replace(
        provenance or Provenance(),
        images=images,
        image_shape=image_shape(anatomy),
        batch_size=largest,
        precision=compute.precision,
        device=compute.device,
        processes=world_size(),
    )


# Feature maps that are not finite.


def _not_finite(anatomy: Anatomy, images: Images, compute: Compute) -> InputError:
    """What to tell: the first block whose feature map is not finite, and for how many images.

    Costs another forward pass; the probes' few numbers told only that there is one.
    """

    def broken(x: Tensor) -> int:
        return int((~torch.isfinite(x)).flatten(1).any(1).sum())

    with watch(anatomy, broken) as kept, compute.autocast():
        forward(anatomy.model, images)
    for block in anatomy:
        if kept.get(block.name):
            advice = (
                "check the weights and the preprocessing"
                if compute.precision == "fp32"
                else f"{compute.precision} may overflow, try precision 'fp32'"
            )
            return InputError(
                f"block {block.name!r} gives NaN or infinite feature maps for "
                f"{kept[block.name]} of {batch_size(images)} images of a batch; {advice}"
            )
    return InputError(
        "the feature maps are finite but so large that measuring them overflows; "
        "check the weights and the preprocessing"
    )
