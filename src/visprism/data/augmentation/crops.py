"""Random resized crops, as in Pillow.

Pillow resizes along a row, rounds to integers, then resizes along a column. Its weights are
integer multiples of 2^-22, whose sums are exact in double precision, so that no byte differs. A
crop is never larger than the image, so that kernels are not widened.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Generator, Tensor
from torch.nn.functional import pad


def framed(
    images: UInt8[Tensor, "b c h w"],
    corner: Int64[Tensor, "2 b"],
    flip: Bool[Tensor, " b"],
    padding: int,
) -> UInt8[Tensor, "b c h w"]:
    """Crops of padded images at `corner`, (top, left) in 0 ... 2 `padding`; some flipped.

    Source: torchvision's RandomCrop with `padding`; He et al. (2016), section 4.2.
    """
    b, c, height, width = images.shape
    x = torch.arange(width, device=images.device)
    rows = torch.arange(height, device=images.device)[:, None] + corner[0, :, None, None]
    columns = torch.where(flip[:, None, None], x.flip(0), x) + corner[1, :, None, None]
    places = (rows * (width + 2 * padding) + columns).view(b, 1, -1).expand(b, c, -1)
    return pad(images, (padding,) * 4).flatten(2).gather(2, places).view_as(images)


_ASPECT = 4 / 3  # of a window, width over height, and the inverse
_ATTEMPTS = 10  # to draw a crop inside the image; then the largest central crop
_UNIT = 2**22


def draw_windows(
    area: float, count: int, size: Sequence[int], generator: Generator
) -> Int64[Tensor, "4 {count}"]:
    """(top, left, height, width) of the crop of each image; the full image if `area` is 1.

    Source: Szegedy et al. (2015), Going deeper with convolutions, section 6, with the ranges of
    timm and torchvision.
    """
    if area == 1:
        return torch.tensor([0, 0, *size])[:, None].repeat(1, count)
    u = torch.rand(4 * _ATTEMPTS, count, generator=generator, dtype=torch.float64)
    return windows(u, area, size)


def windows(
    u: Float64[Tensor, "_ b"], area: float, size: Sequence[int]
) -> Int64[Tensor, "4 b"]:
    """The windows that follow from numbers in 0 ... 1, a column for each image."""
    height, width = size
    part, aspect, down, across = u.view(4, _ATTEMPTS, -1)
    pixels = height * width * (area + (1 - area) * part)
    aspect = (math.log(_ASPECT) * (2 * aspect - 1)).exp()
    high, wide = (
        (pixels / aspect).sqrt().round().long(),
        (pixels * aspect).sqrt().round().long(),
    )
    fits = (high <= height) & (wide <= width) & (high > 0) & (wide > 0)
    first = fits.int().argmax(0, keepdim=True)  # the first attempt that fits, or the first
    high, wide, down, across = (x.gather(0, first)[0] for x in (high, wide, down, across))
    top = (down * (height - high + 1)).long()
    left = (across * (width - wide + 1)).long()
    most = min(height, round(width * _ASPECT)), min(width, round(height * _ASPECT))
    middle = (height - most[0]) // 2, (width - most[1]) // 2
    center = torch.tensor([*middle, *most])[:, None]
    return torch.stack([top, left, high, wide]).where(fits.any(0), center)


def cut_out(
    images: UInt8[Tensor, "b c h w"], window: Int64[Tensor, "4 b"], interpolation: str
) -> UInt8[Tensor, "b c h w"]:
    """The window of each image, (top, left, height, width), resized to the image's size.

    Source: torchvision's and timm's RandomResizedCrop; Keys (1981), Cubic convolution
    interpolation for digital image processing, with a = -1/2.
    """
    height, width = images.shape[2:]
    top, left, high, wide = (x.to(images.device) for x in window)
    across = _weights(left, wide, width, interpolation)
    down = _weights(top, high, height, interpolation)
    rows = _whole(torch.einsum("bchx,bwx->bchw", images.double(), across))
    return _whole(torch.einsum("bcyw,bhy->bchw", rows, down)).byte()


def _whole(values: Float64[Tensor, "b c h w"]) -> Float64[Tensor, "b c h w"]:
    return (values + 0.5).floor_().clamp_(0, 255)


def _weights(
    start: Int64[Tensor, " b"], length: Int64[Tensor, " b"], side: int, interpolation: str
) -> Float64[Tensor, "b {side} {side}"]:
    """What each pixel of the result (rows) takes of each of the image (columns)."""
    pixels = torch.arange(side, device=start.device, dtype=torch.float64)
    length = length[:, None, None].double()
    place = pixels - start[:, None, None]  # in the window
    scale = length / side
    if interpolation == "nearest":  # Pillow adds the scale up
        center = torch.cat([scale / 2, scale.expand(-1, side - 1, 1)], 1).cumsum(1)
        return (place == center.floor()).double()
    center = (pixels[:, None] + 0.5) * scale
    kernel, support = _KERNELS[interpolation]
    inside = (place >= 0) & (place < length)  # nothing beyond the window counts
    distance = place - center + 0.5
    weights = kernel(distance) * (inside & (distance.abs() <= support))
    weights = weights * (1 / weights.sum(2, keepdim=True))
    return (weights * _UNIT).round_().div_(_UNIT)


Kernel = Callable[[Tensor], Tensor]


def _linear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp_(min=0)


def _cubic(x: Tensor) -> Tensor:
    x, a = x.abs(), -0.5
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, inner, torch.where(x < 2, outer, 0.0))


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0.0)


_KERNELS: dict[str, tuple[Kernel, int]] = {
    "bilinear": (_linear, 1),
    "bicubic": (_cubic, 2),
    "lanczos": (_lanczos, 3),
}
