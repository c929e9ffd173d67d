"""Geometric operations: images drawn again with each pixel's centre mapped, as Pillow does it.

A pixel whose centre falls outside of the image is filled. Elsewhere the value is interpolated,
linearly or by a cubic convolution with a = -1, from pixels that repeat beyond the border, and
cut off to a whole number, not rounded. Coordinates and values are in double precision, in the
order of Pillow's code, as the last bit decides where a value is nearly whole.

Source: Keys (1981), Cubic convolution interpolation for digital image processing.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float64, UInt8
from torch import Tensor

Images = UInt8[Tensor, "b c h w"]
Amounts = Float64[Tensor, " b"]
Kernels = Bool[Tensor, " b"]  # cubic, not linear


def slid(
    images: Images, slope: Amounts, offset: Amounts, cubic: Kernels, fill: Sequence[int]
) -> Images:
    """Row y of each image is read from x + slope (y + 1/2) + offset: a shear, or a shift."""
    b, c, height, width = images.shape
    x = torch.arange(width, device=images.device, dtype=torch.float64) + 0.5
    y = torch.arange(height, device=images.device, dtype=torch.float64) + 0.5
    at = x + slope[:, None, None] * y[:, None] + offset[:, None, None]
    inside = (at >= 0) & (at < width)
    at = at - 0.5
    first = at.floor()
    taps = (first.long()[..., None] + torch.arange(-1, 3, device=images.device)).clamp_(
        0, width - 1
    )
    around = images.gather(3, taps.view(b, 1, height, -1).expand(b, c, height, 4 * width))
    around = around.view(b, c, height, width, 4).double()
    values = _interpolated(around.unbind(4), (at - first)[:, None], _shaped(cubic))
    return _filled(values, inside, fill)


def rotated(images: Images, degrees: Amounts, cubic: Kernels, fill: Sequence[int]) -> Images:
    """Each image turned counter-clockwise about its centre."""
    b, c, height, width = images.shape
    a00, a01, a02, a10, a11, a12 = (
        torch.tensor(row, device=images.device, dtype=torch.float64)[:, None, None]
        for row in zip(*(_rotation(d, height, width) for d in degrees.tolist()), strict=True)
    )
    x = torch.arange(width, device=images.device, dtype=torch.float64) + 0.5
    y = torch.arange(height, device=images.device, dtype=torch.float64)[:, None] + 0.5
    across, down = a00 * x + a01 * y + a02, a10 * x + a11 * y + a12
    inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
    across, down = across - 0.5, down - 0.5
    left, top = across.floor(), down.floor()
    four = torch.arange(-1, 3, device=images.device)
    columns = (left.long()[..., None] + four).clamp_(0, width - 1)
    rows = (top.long()[..., None] + four).clamp_(0, height - 1)
    taps = rows[..., :, None] * width + columns[..., None, :]
    around = images.view(b, c, -1).gather(2, taps.view(b, 1, -1).expand(b, c, -1))
    around = around.view(b, c, height, width, 4, 4).double()
    kernel = _shaped(cubic)
    lines = _interpolated(around.unbind(5), (across - left)[:, None, ..., None], kernel[..., None])
    values = _interpolated(lines.unbind(4), (down - top)[:, None], kernel)
    return _filled(values, inside, fill)


def _rotation(degrees: float, height: int, width: int) -> tuple[float, ...]:
    """The affine map from a pixel of the turned image to one of the image, as Pillow's."""
    angle = -math.radians(degrees % 360.0)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return (
        cosine,
        sine,
        cosine * -x + sine * -y + 0.0 + x,
        -sine,
        cosine,
        -sine * -x + cosine * -y + 0.0 + y,
    )


def _interpolated(
    around: Sequence[Float64[Tensor, "..."]],
    distance: Float64[Tensor, "..."],
    cubic: Float64[Tensor, "..."],
) -> Float64[Tensor, "..."]:
    """The value at `distance`, 0 ... 1, from the second of four values to the third."""
    v1, v2, v3, v4 = around
    step = v3 - torch.where(cubic > 0, v1, v2)
    second = cubic * (2 * (v1 - v2) + v3 - v4)
    third = cubic * (v2 - v1 - v3 + v4)
    return v2 + distance * (step + distance * (second + distance * third))


def _shaped(cubic: Kernels) -> Float64[Tensor, "b 1 1 1"]:
    return cubic.double().view(-1, 1, 1, 1)


def _filled(values: Tensor, inside: Tensor, fill: Sequence[int]) -> Images:
    colour = torch.tensor(fill, device=values.device, dtype=torch.uint8)[:, None, None]
    return torch.where(inside[:, None], values.clamp_(0, 255).byte(), colour)
