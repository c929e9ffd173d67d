"""BatchNorm: which statistics it normalizes by while a loss is measured."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.anatomy import forward
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.measure.loss.cached_batches import CachedBatches

# "frozen": the running statistics of the model. "batch": the statistics of each batch, as in
# training. "reestimated": running statistics that are computed from the images that the
# loss is measured on, for each set of weights.
BatchNorm = Literal["frozen", "batch", "reestimated"]


def check_batch_norm(batch_norm: str, supported: Sequence[str], quantity: str) -> None:
    """Require a treatment of BatchNorm that a measurement supports."""
    if batch_norm not in supported:
        raise InputError(
            f"batch_norm must be {' or '.join(map(repr, supported))} for {quantity}, got "
            f"{batch_norm!r}"
        )


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """The layers that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@torch.no_grad()
def reestimate(
    model: nn.Module,
    samples: CachedBatches,
    compute: Compute,
    tick: Callable[[], object] = lambda: None,
) -> None:
    """Overwrite the running statistics of every BatchNorm with those of these images.

    The mean and the variance of the input of each layer, averaged over batches with equal
    weights.

    Cost: one forward pass.

    Args:
        model: its buffers are overwritten.
        samples: the images.
        compute: precision.
        tick: called before each batch.
    """
    norms = batch_norms(model)
    before = [(norm.momentum, norm.training) for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative average
            norm.training = True
        for images, _ in samples.batches if norms else ():
            tick()
            with compute.autocast():
                forward(model, images)
    finally:
        for norm, (momentum, training) in zip(norms, before, strict=True):
            norm.momentum, norm.training = momentum, training


@contextmanager
def preserved_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, running statistics may be overwritten; on exit they are restored."""
    before = [
        (norm, {name: b.clone() for name, b in norm.named_buffers(recurse=False)})
        for norm in batch_norms(model)
    ]
    try:
        yield
    finally:
        for norm, buffers in before:
            for name, value in buffers.items():
                norm.get_buffer(name).copy_(value)
