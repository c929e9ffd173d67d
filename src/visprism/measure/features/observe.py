"""Observation: one pass over the data that feeds every probe."""

import copy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from visprism.anatomy import (
    Anatomy,
    Attention,
    Block,
    Images,
    Weights,
    attend,
    attentions,
    batch_size,
    forward,
    watch,
)
from visprism.errors import InputError
from visprism.measure.features.intake import Batch, blocks_on_grid, image_shape, images_of
from visprism.measure.features.probe import Probe
from visprism.parallel import CPU, Compute, gather, rank, share, world_size
from visprism.result import Provenance, Result

Progress = Callable[[Iterable], Iterable]


def observe(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    probes: Iterable[Probe],
    *,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> tuple[Result, ...]:
    """Run the model once over the data and let every probe see every block.

    Memory does not grow with the number of images. The model and the probes stay as they are:
    copies of the probes gather, and parameters that went to another device come back.

    Several processes (started by ``torchrun``, see `visprism.parallel.processes`) take turns
    with the batches; each gets the same results, those of one process up to rounding.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is images, or (images, targets); images are a tensor (B, C, H, W) or a
            mapping of tensors, of the size that the model was dissected with.
        probes: what to measure.
        compute: device and precision of the forward pass.
        progress: wraps the batches to show how far it is, as ``tqdm.tqdm`` does.
        provenance: what is known of the model and the data; the rest is filled in here.

    Returns:
        One result for each probe, in their order.

    Raises:
        InputError: if the model is in training mode, there are no images or they do not fit, or
            a block gives no feature map or one that is not finite.
    """
    blocks_on_grid(anatomy)  # there are some
    probes = [probes] if isinstance(probes, Probe) else list(probes)
    for probe in probes:
        if not isinstance(probe, Probe):
            raise InputError(f"wanted probes, such as [FourierProbe()], got {probe!r}")
    probes = [copy.deepcopy(probe) for probe in probes]
    images, largest = _pass(anatomy, batches, probes, compute, progress)
    images, largest = _together(probes, images, largest)
    if not images:
        raise InputError("no images were observed; is the data empty?")
    facts = replace(
        provenance or Provenance(),
        images=images,
        image_shape=image_shape(anatomy),
        batch_size=largest,
        precision=compute.precision,
        device=compute.device,
        processes=world_size(),
    )
    results = [probe.result() for probe in probes]
    return tuple(
        replace(r, provenance=replace(facts, protocol=r.provenance.protocol)) for r in results
    )


def _pass(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    probes: Sequence[Probe],
    compute: Compute,
    progress: Progress | None,
) -> tuple[int, int]:
    """Fill the probes from this process's batches; count the images, all and of one batch."""
    seen = largest = 0
    # Not inference mode: what a model caches in it, it could never be differentiated through.
    with compute.borrow(anatomy.model), torch.no_grad(), ExitStack() as stack:
        views = [
            view(anatomy, some, stack)
            for sees, view in _VIEWS.items()
            if (some := [probe for probe in probes if probe.sees == sees])
        ]
        shown = progress if progress and rank() == 0 else iter
        for batch in shown(share(batches)):
            images = images_of(batch, anatomy, compute)
            for view in views:
                view.kept.clear()
            with compute.autocast():
                forward(anatomy.model, images)
            extracts = [view.extracts() for view in views]
            tensors = [e for seen_here in extracts for es in seen_here.values() for e in es]
            if not all(torch.isfinite(e).all() for e in tensors):
                raise _not_finite(anatomy, images, compute)
            for view, of_view in zip(views, extracts, strict=True):
                for i, probe in enumerate(view.probes):
                    probe.update({thing: es[i] for thing, es in of_view.items()})
            seen += batch_size(images)
            largest = max(largest, batch_size(images))
    return seen, largest


# What probes see of a forward pass.


@dataclass(frozen=True)
class _View:
    """Some probes, and what they keep of each thing that they see, by its name."""

    probes: Sequence[Probe]
    things: Mapping[str, Block | Attention]
    kept: dict[str, list[Tensor]]

    def extracts(self) -> dict[Block | Attention, list[Tensor]]:
        """What each probe kept of the latest forward pass, in forward order.

        Raises:
            InputError: if the pass went another way than the dissected one.
        """
        for name in self.things:
            if name not in self.kept:
                raise InputError(
                    f"block {name!r} did not run for these images as it did when the model was "
                    "dissected; dissect the model as it is now, with images like these"
                )
        return {thing: [e.cpu() for e in self.kept[n]] for n, thing in self.things.items()}


def _of_feature_maps(anatomy: Anatomy, probes: Sequence[Probe], stack: ExitStack) -> _View:
    def extract(x: Tensor) -> list[Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            return [probe.extract(_precise(x)) for probe in probes]

    blocks = {block.name: block for block in anatomy if block.layout is not None}
    return _View(probes, blocks, stack.enter_context(watch(anatomy, _eager(extract))))


def _of_attention(anatomy: Anatomy, probes: Sequence[Probe], stack: ExitStack) -> _View:
    def extract(weights: Weights) -> list[Tensor]:
        with torch.autocast(weights.values.device.type, enabled=False):
            precise = replace(weights, values=_precise(weights.values))
            return [probe.extract(precise) for probe in probes]

    kept = attend(anatomy, _eager(extract))
    things = {attention.name: attention for attention in attentions(anatomy)}
    return _View(probes, things, stack.enter_context(kept))


_VIEWS = {"feature maps": _of_feature_maps, "attention": _of_attention}


def _precise(x: Tensor) -> Tensor:
    """In float32 or better, whatever the precision of the forward pass."""
    return x if x.dtype == torch.float64 else x.float()


def _eager(extract: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """What a compiled model must not compile too."""
    return torch.compiler.disable(extract) if "torch._dynamo" in sys.modules else extract


def _together(probes: Sequence[Probe], images: int, largest: int) -> tuple[int, int]:
    """Give each process's probes the sums of all, added in the order of ranks: equal bits."""
    sums, counts, sizes = zip(*gather(([p.sums for p in probes], images, largest)), strict=True)
    for probe, its in zip(probes, zip(*sums, strict=True), strict=True):
        probe.sums = {}
        for own in its:
            probe.add(own)
    return sum(counts), max(sizes)


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
