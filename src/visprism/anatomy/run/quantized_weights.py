"""Quantized weights: convolution and linear weights of a block rounded to a few bits."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block


def quantized(weight: Tensor, bits: int) -> Tensor:
    """Weights rounded to a symmetric grid of 2^bits - 1 values for each output channel.

    With m = max |w| of a channel (first axis) and s = m / (2^(bits - 1) - 1) they are
    s round(w / s), rounded to nearest, ties to even.

    Example:
        >>> quantized(torch.tensor([[0.1, -0.7, 1.0], [0.0, 0.0, 0.0]]), 2)
        tensor([[ 0., -1.,  1.],
                [ 0.,  0.,  0.]])
    """
    rows = weight.flatten(1)
    levels = 2 ** (bits - 1) - 1
    scale = rows.abs().amax(1, keepdim=True) / levels
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return ((rows / scale).round() * scale).reshape(weight.shape)


def weights_of(anatomy: Anatomy, block: Block) -> list[str]:
    """Names of the weights of a block with an axis of output channels and one of inputs."""
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    return [n for n in block.parameters if n.endswith("weight") and parameters[n].ndim > 1]


@contextmanager
def quantize_weights(anatomy: Anatomy, block: Block, bits: int) -> Iterator[None]:
    """Inside, the weights of a block are quantized; on exit it has its original tensors.

    A parameter that two blocks share is quantized in both.
    """
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    weights = [parameters[name] for name in weights_of(anatomy, block)]
    original = [weight.data for weight in weights]
    try:
        for weight in weights:
            weight.data = quantized(weight.data, bits)
        yield
    finally:
        for weight, data in zip(weights, original, strict=True):
            weight.data = data
