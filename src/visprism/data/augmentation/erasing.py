"""Random erasing: a rectangle of some images is filled with normal noise, or with zeros."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor

_AREA = (0.02, 1 / 3)  # of the rectangle, as a fraction of the image's
_ASPECT = 0.3  # of the rectangle, height over width, and the inverse
_ATTEMPTS = 10  # at a rectangle that is smaller than the image; then none is erased


def draw_boxes(
    probability: float, count: int, size: Sequence[int], generator: Generator
) -> Int64[Tensor, "4 {count}"]:
    """(top, bottom, left, right) of the erased box of each image; empty where none is erased.

    Source: Zhong et al. (2020), Random erasing data augmentation, algorithm 1, with the ranges
    of timm.
    """
    if not probability:
        return torch.zeros(4, count, dtype=torch.int64)
    u = torch.rand(1 + 4 * _ATTEMPTS, count, generator=generator, dtype=torch.float64)
    return boxes(u, probability, size)


def boxes(
    u: Float64[Tensor, "_ b"], probability: float, size: Sequence[int]
) -> Int64[Tensor, "4 b"]:
    """The boxes of uniform random numbers in [0, 1), one column per image."""
    height, width = size
    area, aspect, down, across = u[1:].view(4, _ATTEMPTS, -1)
    area = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
    aspect = (math.log(_ASPECT) * (1 - 2 * aspect)).exp()
    high, wide = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
    fits = (high < height) & (wide < width)
    first = fits.int().argmax(0, keepdim=True)  # the first attempt that fits, or the first
    chosen = fits.any(0) & (u[0] < probability)
    high, wide, down, across = (x.gather(0, first)[0] for x in (high, wide, down, across))
    top = (down * (height - high + 1)).long()
    left = (across * (width - wide + 1)).long()
    return torch.stack([top, top + high, left, left + wide]) * chosen


def erased(
    images: Float[Tensor, "b c h w"],
    box: Int64[Tensor, "4 b"],
    noise: Int64[Tensor, " b"],
    mode: Literal["pixel", "const"],
) -> Float[Tensor, "b c h w"]:
    """Normalized images with their boxes filled: modes "pixel" and "const" of timm.

    "pixel" draws normal noise for each value, which depends on the seed of the image in `noise`
    alone; "const" writes zeros, the mean of the channel. Changes `images` in place.
    """
    erased_images = (box[1] > box[0]).nonzero().ravel().tolist()
    for i in erased_images:
        top, bottom, left, right = box[:, i].tolist()
        if mode == "const":
            images[i, :, top:bottom, left:right] = 0
            continue
        generator = Generator().manual_seed(int(noise[i]))
        shape = (images.shape[1], bottom - top, right - left)
        images[i, :, top:bottom, left:right] = torch.randn(shape, generator=generator).to(
            images
        )
    return images
