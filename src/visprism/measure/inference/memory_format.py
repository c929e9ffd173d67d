"""Memory format: images and kernels whose channels lie next to each other."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from visprism.anatomy import Images
from visprism.core.interrupts import delayed_interrupts


def to_channels_last(images: Images) -> Images:
    """The same images with the memory format channels last."""
    if isinstance(images, Mapping):
        return {name: _converted(tensor) for name, tensor in images.items()}
    return _converted(images)


@contextmanager
def channels_last_kernels(model: nn.Module) -> Iterator[None]:
    """Inside, all 4-D parameters have the memory format channels last; on exit their own."""
    kernels = [p for p in model.parameters() if p.ndim == 4]
    original = [kernel.data for kernel in kernels]
    try:
        for kernel in kernels:
            kernel.data = _converted(kernel.data)
        yield
    finally:
        with delayed_interrupts():
            for kernel, data in zip(kernels, original, strict=True):
                kernel.data = data


def _converted(tensor: Tensor) -> Tensor:
    last = torch.channels_last
    return tensor.contiguous(memory_format=last) if tensor.ndim == 4 else tensor
