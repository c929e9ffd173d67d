"""Observation: one pass over the data that feeds every probe."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace

from visprism.anatomy import Anatomy, batch_size
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.batches import Batch, blocks_on_grid, images_of
from visprism.measure.features.observing import (
    Progress,
    measured,
    shown,
    together,
    watched,
)
from visprism.measure.features.probe import Probe
from visprism.results.base import Result


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

    Several processes (started by ``torchrun``, see `visprism.core.processes.processes`) take turns
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
    images, largest = together(probes, images, largest)
    facts = measured(provenance, anatomy, compute, images=images, largest=largest)
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
    with watched(anatomy, probes, compute) as run:
        for batch in shown(batches, progress):
            images = images_of(batch, anatomy, compute)
            for probe, extracts in zip(probes, run(images), strict=True):
                probe.update(extracts)
            seen += batch_size(images)
            largest = max(largest, batch_size(images))
    return seen, largest
