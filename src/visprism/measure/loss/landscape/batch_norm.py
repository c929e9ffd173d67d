"""BatchNorm: running statistics estimated anew for weights that training has never seen."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.anatomy import forward
from visprism.core.devices import Compute
from visprism.measure.loss.landscape.cached_batches import Samples


@torch.no_grad()
def reestimate(model: nn.Module, samples: Samples, compute: Compute) -> None:
    """Give every BatchNorm the mean and variance of its input, over these samples.

    The average over batches, each counted alike. The buffers are overwritten.
    """
    norms = batch_norms(model)
    before = [(norm.momentum, norm.training) for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.training = True
        for images, _ in samples.batches if norms else ():
            with compute.autocast():
                forward(model, images)
    finally:
        for norm, (momentum, training) in zip(norms, before, strict=True):
            norm.momentum, norm.training = momentum, training


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """The layers that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Inside, running statistics may be overwritten; afterwards they are as they were."""
    kept = [
        (norm, {name: b.clone() for name, b in norm.named_buffers(recurse=False)})
        for norm in batch_norms(model)
    ]
    try:
        yield
    finally:
        for norm, buffers in kept:
            for name, value in buffers.items():
                norm.get_buffer(name).copy_(value)
