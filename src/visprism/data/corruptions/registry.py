"""The registry of corruptions: one function per name.

A corruption takes images of eight bits, a severity and the randomness of each image, and gives
images of eight bits; `scale.in_unit` makes one of a function of numbers in 0 ... 1.
"""

from collections.abc import Callable
from functools import wraps

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from visprism.core.registry import Registry
from visprism.data.corruptions.randomness import Randomness

CORRUPTIONS = Registry("corruption")

# In the order of the paper's table 1.
COMMON = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # for validation, there


# Published images are truncated to eight bits, from float64. In float32 a value that
# should be an integer may lie below it by a hundredth of this.
_ROUNDING = 1e-3
_CACHED = 131_072  # numbers per chunk, so that it fits into the cache of a core

OfNumbers = Callable[[Float[Tensor, "b 3 h w"], int, Randomness], Float[Tensor, "b 3 h w"]]
OfPixels = Callable[[UInt8[Tensor, "b 3 h w"], int, Randomness], UInt8[Tensor, "b 3 h w"]]


def in_unit(corruption: OfNumbers) -> OfPixels:
    """A corruption of numbers in 0 ... 1 as one of eight-bit images."""

    @wraps(corruption)
    def of_pixels(images: Tensor, severity: int, randomness: Randomness) -> Tensor:
        corrupted = torch.empty_like(images)
        chunk_size = len(images) if images.is_cuda else _CACHED // images[0].numel() + 1
        for start in range(0, len(images), chunk_size):
            part = slice(start, start + chunk_size)
            numbers = images[part].float().div_(255)
            corrupted[part] = eight_bit(corruption(numbers, severity, randomness.of(part)))
        return corrupted

    return of_pixels


def eight_bit(images: Float[Tensor, "..."]) -> UInt8[Tensor, "..."]:
    """Numbers in 0 ... 1 as integers up to 255, truncated as in the published code."""
    return images.mul(255).add_(_ROUNDING).clamp_(0, 255).byte()
