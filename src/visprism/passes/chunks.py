"""Cache chunks: feature maps in chunks that fit into the processor's cache.

Reductions of a feature map read it more than once. In chunks it is read from memory only once,
which dominates their time.
"""

from collections.abc import Iterator

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

# Bytes: the cache of one core on most machines; on other devices a chunk only bounds the
# memory.
_PER_CORE = 2**21
_ELSEWHERE = 2**28


def cache_chunks(x: Float[Tensor, "b c h w"]) -> Iterator[Float[Tensor, "_ h w _"]]:
    """Whole images of `x`, a few at a time, as (m, h, w, r) without a copy.

    Channels stand where they lie in memory: (b c) h w 1 or b h w c. Reduce h and w, then
    `channel_mean` gives one row per image again.
    """
    size = _PER_CORE * torch.get_num_threads() if x.is_cpu else _ELSEWHERE
    images = max(1, size // (x.shape[1:].numel() * x.element_size()))
    channels_last = x.stride(1) == 1 and x.shape[1] > 1
    for chunk in x.split(images):
        if channels_last:
            yield rearrange(chunk, "b c h w -> b h w c")
        else:
            yield rearrange(chunk, "b c h w -> (b c) h w 1")


def channel_mean(
    values: Float[Tensor, "m n r"], x: Float[Tensor, "b c h w"]
) -> Float[Tensor, "_ n"]:
    """Mean over the channels of what was computed from a chunk of `x`."""
    channels = x.shape[1] // values.shape[2]
    return rearrange(values, "(b c) n r -> b n c r", c=channels).mean((2, 3))
