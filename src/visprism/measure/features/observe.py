"""Observation: one pass over the data that feeds every probe."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from visprism.anatomy import Anatomy, Images, batch_size, forward, watch
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.batches import (
    Batch,
    blocks_on_grid,
    image_indices,
    image_shape,
    images_of,
    targets_of,
)
from visprism.measure.features.probe import Probe
from visprism.measure.features.taps import Extracts, taps
from visprism.results.base import Result
from visprism.results.per_image import PerImage


@dataclass(frozen=True)
class Observation:
    """What a probe gathered in one pass over the data."""

    result: Result
    per_image: PerImage | None  # values of single images; None if the probe records none
    further: tuple[Result, ...] = ()  # of other types, over the same data

    def measured(self, origin: Provenance) -> "Observation":
        """The same with its provenance; the protocol is that of the result."""
        origin = replace(origin, protocol=self.result.provenance.protocol)
        return Observation(
            replace(self.result, provenance=origin),
            None if self.per_image is None else replace(self.per_image, provenance=origin),
            tuple(replace(result, provenance=origin) for result in self.further),
        )


def observe(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    probes: Iterable[Probe],
    *,
    run: Run = DEFAULT_RUN,
) -> tuple[Result, ...]:
    """Run the model once over the data and update every probe with every block.

    Memory grows with the number of images only by the numbers that probes `Probe.record`. The
    model and the probes stay as they are: copies of the probes accumulate, and parameters that
    were moved to another device are moved back.

    Several processes (started by ``torchrun``, see `visprism.core.processes.processes`) take
    turns with the batches; each gets the same results, those of one process up to rounding.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is images, or (images, targets); images are a tensor (B, C, H, W) or a
            mapping of tensors, of the size that the model was dissected with.
        probes: what to measure.
        run: device, precision, seed, progress and provenance.

    Returns:
        One result for each probe, in their order.
    """
    return tuple(seen.result for seen in observations(anatomy, batches, probes, run=run))


def observations(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    probes: Iterable[Probe],
    *,
    run: Run = DEFAULT_RUN,
) -> tuple[Observation, ...]:
    """Results as of `observe`, each with the values of single images that its probe recorded.

    The index of an image is its place in the data, also where several processes take turns.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is images, or (images, targets); see `observe`.
        probes: what to measure.
        run: device, precision, seed, progress and provenance.

    Returns:
        One observation for each probe, in their order.
    """
    probes = [probes] if isinstance(probes, Probe) else list(probes)
    for probe in probes:
        if not isinstance(probe, Probe):
            raise InputError(f"probes must be probes, such as [FourierProbe()], got {probe!r}")
    probes = [copy.deepcopy(probe) for probe in probes]
    between = blocks_off_grid(anatomy)
    for probe in probes:
        probe.seed, probe.between = run.seed, between
    sizes: list[int] = []
    with observing(anatomy, probes, run.compute) as extract:
        for batch in run.track_share(batches, "observing feature maps"):
            pixels = images_of(batch, anatomy, run.compute)
            targets = targets_of(batch)
            for probe, extracts in zip(probes, extract(pixels), strict=True):
                probe.targets = targets
                probe.update(extracts)
            sizes.append(batch_size(pixels))
    images, largest = all_reduce_probes(probes, sum(sizes), max(sizes, default=0))
    image = all_gather_recorded(probes, sizes)
    origin = run.measured(images=images, batch_size=largest, image_shape=image_shape(anatomy))
    seen = [
        Observation(probe.result(), probe.per_image(image), probe.further_results())
        for probe in probes
    ]
    return tuple(observation.measured(origin) for observation in seen)


@contextmanager
def observing(
    anatomy: Anatomy, probes: Sequence[Probe], compute: Compute
) -> Iterator[Callable[[Images], list[Extracts]]]:
    """Inside, a function that runs the model on images and returns what each probe extracts."""
    blocks_on_grid(anatomy)  # refuses a model without any
    # Not inference mode: what a model caches in it, it could never be differentiated through.
    with compute.borrow(anatomy.model), torch.no_grad(), ExitStack() as stack:
        every_tap = taps(anatomy, probes, stack)

        def run_model(images: Images) -> list[Extracts]:
            for tap in every_tap:
                tap.extracted.clear()
            with compute.autocast():
                forward(anatomy.model, images)
            by_probe: dict[int, Extracts] = {id(probe): {} for probe in probes}
            for tap in every_tap:
                for probe, extracts in zip(tap.probes, tap.extracts(), strict=True):
                    by_probe[id(probe)].update(extracts)
            if not all(
                torch.isfinite(e).all() for es in by_probe.values() for e in es.values()
            ):
                raise _not_finite(anatomy, images, compute)
            return [by_probe[id(probe)] for probe in probes]

        yield run_model


def all_reduce_probes(probes: Sequence[Probe], images: int, largest: int) -> tuple[int, int]:
    """Give each process's probes the sums of all, added in the order of ranks: equal bits.

    Args:
        probes: that saw this process's batches.
        images: number of images that this process saw.
        largest: number of images in its largest batch.

    Returns:
        Number of images and largest batch of all processes.
    """
    sums, counts, sizes = zip(*gather(([p.sums for p in probes], images, largest)), strict=True)
    for probe, parts in zip(probes, zip(*sums, strict=True), strict=True):
        probe.sums = {}
        for part in parts:
            probe.add(part)
    if not any(counts):
        raise InputError("batches must hold at least one image, got none")
    return sum(counts), max(sizes)


def all_gather_recorded(
    probes: Sequence[Probe], sizes: Sequence[int]
) -> Int[np.ndarray, " images"]:
    """Give each process's probes the values of single images that all recorded.

    Args:
        probes: that saw this process's batches.
        sizes: number of images in each of them.

    Returns:
        Index in the data of each image, in the order of the values of the probes.
    """
    recorded, by_process = zip(*gather(([p.recorded for p in probes], sizes)), strict=True)
    for probe, parts in zip(probes, zip(*recorded, strict=True), strict=True):
        quantities = dict.fromkeys(quantity for part in parts for quantity in part)
        probe.recorded = {q: [v for part in parts for v in part.get(q, ())] for q in quantities}
    return np.concatenate(image_indices(by_process))


def blocks_off_grid(anatomy: Anatomy) -> dict[str, str]:
    """Names of the blocks off the grid that stand right before a block on it, by its name."""
    ends = {block.end: block for block in anatomy}
    between = dict[str, str]()
    for block in anatomy:
        missing, before = list[str](), ends.get(block.start)
        while before is not None and before.layout is None:
            missing.insert(0, before.name)
            before = ends.get(before.start)
        if missing and block.layout is not None:
            between[block.name] = ", ".join(missing)
    return between


def _not_finite(anatomy: Anatomy, images: Images, compute: Compute) -> InputError:
    """Names the first block whose feature map is not finite, and the number of images.

    Costs another forward pass; the probes' extracts only show that there is one.
    """

    def count(x: Tensor) -> int:
        return int((~torch.isfinite(x)).flatten(1).any(1).sum())

    with watch(anatomy, count) as counts, compute.autocast():
        forward(anatomy.model, images)
    for block in anatomy:
        if counts.get(block.name):
            remedy = (
                "Check the weights and the preprocessing."
                if compute.precision == "fp32"
                else f"{compute.precision} may overflow: try precision 'fp32'."
            )
            return InputError(
                f"feature maps must be finite, got NaN or infinity from block {block.name!r} "
                f"for {counts[block.name]} of {batch_size(images)} images of a batch. {remedy}"
            )
    return InputError(
        "the feature maps are finite but so large that statistics of them overflow. "
        "Check the weights and the preprocessing."
    )
