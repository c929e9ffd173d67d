"""Memory format: images and kernels whose channels lie next to each other."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from visprism.anatomy import Images, forward
from visprism.core.devices import delayed_interrupts

_TOLERANCE = 1e-4  # of the largest logit


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


@torch.no_grad()
def same_in_channels_last(model: nn.Module, images: Images) -> bool:
    """Whether the logits of images in channels last are those of the images as they are.

    A model that views its feature maps as contiguous fails with this format. Buffers are
    restored.

    Cost: two forward passes of the images.
    """
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        expected = forward(model, images)
        logits = forward(model, to_channels_last(images))
    except RuntimeError:
        return False
    finally:
        for buffer, before in buffers:
            buffer.copy_(before)
    reach = _TOLERANCE * float(expected.abs().max())
    return bool((logits - expected).abs().max() <= reach)


def _converted(tensor: Tensor) -> Tensor:
    last = torch.channels_last
    return tensor.contiguous(memory_format=last) if tensor.ndim == 4 else tensor
