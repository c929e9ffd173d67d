"""Random erasing: a rectangle of each chosen image is replaced by normal noise."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor

_AREA = (0.02, 1 / 3)  # of the rectangle, as a part of the image's
_ASPECT = 0.3  # of the rectangle, height over width, and the inverse
_ATTEMPTS = 10  # to draw one that is smaller than the image; then none is erased


def draw_boxes(
    probability: float, count: int, size: Sequence[int], generator: Generator
) -> Int64[Tensor, "4 {count}"]:
    """(top, bottom, left, right) of what is erased of each image; empty where nothing is.

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
    """The boxes that follow from numbers in 0 ... 1, a column for each image."""
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
) -> Float[Tensor, "b c h w"]:
    """Standardised images, each with its box filled with normal noise, pixel by pixel.

    The noise of an image depends on its seed in `noise` alone. Changes `images` in place.
    """
    chosen = (box[1] > box[0]).nonzero().ravel().tolist()
    for i in chosen:
        top, bottom, left, right = box[:, i].tolist()
        generator = Generator().manual_seed(int(noise[i]))
        shape = (images.shape[1], bottom - top, right - left)
        filling = torch.randn(shape, generator=generator)
        images[i, :, top:bottom, left:right] = filling.to(images)
    return images
