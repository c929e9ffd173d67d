"""Passes through a model in training: what they reach, and what they cannot do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.core.errors import InputError
from visprism.core.processes import world_size


def all_parameters_used(model: nn.Module, losses: Callable[[], Tensor]) -> bool:
    """Whether losses depend on every parameter that is trained.

    Costs a pass forward and back; running statistics and gradients are left as they are.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    before = [buffer.clone() for buffer in model.buffers()]
    found = torch.autograd.grad(losses().sum(), parameters, allow_unused=True)
    with torch.no_grad():
        for buffer, old in zip(model.buffers(), before, strict=True):
            buffer.copy_(old)
    return all(gradient is not None for gradient in found)


@contextmanager
def explain_batchnorm_error(
    model: nn.Module, images: int, whole: int, parts: int
) -> Iterator[None]:
    """BatchNorm takes the deviation of what it sees, and some see one value of one image."""
    try:
        yield
    except ValueError as error:
        normed = any(isinstance(module, _BatchNorm) for module in model.modules())
        if isinstance(error, InputError) or images > 1 or not normed:
            raise
        raise InputError(
            f"BatchNorm cannot train on one image alone, a part of one of {whole} images in "
            f"parts={parts} on {world_size()} processes; choose batch_size and parts so that "
            "each part has two images, also of the last batch"
        ) from error
