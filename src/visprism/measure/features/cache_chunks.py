"""Pieces: feature maps cut into parts that fit into the processor's cache.

Reductions of a feature map read it more than once. In pieces it comes from memory only once,
which is what their time goes into.
"""

from collections.abc import Iterator

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

# Bytes: a core's own cache on most machines; on other devices a piece only bounds the memory.
_PER_CORE = 2**21
_ELSEWHERE = 2**28


def pieces(x: Float[Tensor, "b c h w"]) -> Iterator[Float[Tensor, "_ h w _"]]:
    """Whole images of `x`, a few at a time, as (m, h, w, r) without a copy.

    Channels stand where they lie in memory: (b c) h w 1 or b h w c. Reduce h and w, then
    `channel_mean` gives one row per image again.
    """
    size = _PER_CORE * torch.get_num_threads() if x.is_cpu else _ELSEWHERE
    images = max(1, size // (x.shape[1:].numel() * x.element_size()))
    channels_last = x.stride(1) == 1 and x.shape[1] > 1
    for piece in x.split(images):
        if channels_last:
            yield rearrange(piece, "b c h w -> b h w c")
        else:
            yield rearrange(piece, "b c h w -> (b c) h w 1")


def channel_mean(
    values: Float[Tensor, "m n r"], x: Float[Tensor, "b c h w"]
) -> Float[Tensor, "_ n"]:
    """Mean over the channels of what was computed from a piece of `x`."""
    channels = x.shape[1] // values.shape[2]
    return rearrange(values, "(b c) n r -> b n c r", c=channels).mean((2, 3))
