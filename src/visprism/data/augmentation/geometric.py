"""Geometric operations: images resampled at mapped pixel centers, as in Pillow.

A pixel whose center falls outside the image is filled. Elsewhere the value is interpolated,
linearly or by a cubic convolution with a = -1, with pixels repeated beyond the border, and
truncated to an integer. Coordinates and values are in double precision, in the order of
Pillow's code, since the last bit decides for values close to an integer. Amounts and kernels
are on the CPU, so that the GPU is not synchronized.

Source: Keys (1981), Cubic convolution interpolation for digital image processing.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Tensor


def regrouped(
    groups: Sequence[tuple[Int64[Tensor, " _"], UInt8[Tensor, "_ c h w"]]],
) -> UInt8[Tensor, "b c h w"]:
    """One batch from groups of images, each with its indices in the batch.

    Full images are copied, which is many times faster than indexed assignment.
    """
    places, images = zip(*groups, strict=True)
    pixels = torch.cat(images)
    return pixels.index_select(0, torch.cat(places).argsort().to(pixels.device))


Images = UInt8[Tensor, "b c h w"]
Amounts = Float64[Tensor, " b"]
Kernels = Bool[Tensor, " b"]  # cubic, not linear


def slid(
    images: Images, slope: Amounts, offset: Amounts, cubic: Kernels, fill: Sequence[int]
) -> Images:
    """Row y of each image is read from x + slope (y + 1/2) + offset: a shear, or a shift."""
    height, width = images.shape[2:]
    slopes, offsets = (x.to(images.device).view(-1, 1, 1) for x in (slope, offset))
    across = _centers(width, images) + slopes * _centers(height, images)[:, None] + offsets
    inside = (across >= 0) & (across < width)
    column, distance = _split(across)
    groups = []
    for chosen, curve, reach in _kernels(cubic):
        indices = chosen.to(images.device)
        selected, first = (
            images.index_select(0, indices).double(),
            column.index_select(0, indices),
        )
        taps = [
            selected.gather(3, (first + t).clamp_(0, width - 1)[:, None].expand_as(selected))
            for t in reach
        ]
        values = curve(taps, distance.index_select(0, indices)[:, None])
        groups.append((chosen, values.clamp_(0, 255).byte()))
    return _filled(regrouped(groups), inside, fill)


def rotated(images: Images, degrees: Amounts, cubic: Kernels, fill: Sequence[int]) -> Images:
    """Each image rotated counter-clockwise about its center."""
    height, width = images.shape[2:]
    maps = [_rotation(angle, height, width) for angle in degrees.tolist()]
    table = torch.tensor(maps, device=images.device, dtype=torch.float64)
    a00, a01, a02, a10, a11, a12 = (column.view(-1, 1, 1) for column in table.unbind(1))
    x, y = _centers(width, images), _centers(height, images)[:, None]
    across, down = a00 * x + a01 * y + a02, a10 * x + a11 * y + a12
    inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
    column, to_right = _split(across)
    row, to_bottom = _split(down)
    groups = []
    for chosen, curve, reach in _kernels(cubic):
        indices = chosen.to(images.device)
        selected = images.index_select(0, indices).flatten(2).double()
        right, bottom, x, y = (
            places.index_select(0, indices).flatten(1)[:, None]
            for places in (to_right, to_bottom, column, row)
        )
        columns = [(x + t).clamp_(0, width - 1) for t in reach]
        lines = []
        for t in reach:
            begin = (y + t).clamp_(0, height - 1).mul_(width)
            taps = [selected.gather(2, (begin + c).expand_as(selected)) for c in columns]
            lines.append(curve(taps, right))
        values = curve(lines, bottom).clamp_(0, 255).byte()
        groups.append((chosen, values.view(-1, *images.shape[1:])))
    return _filled(regrouped(groups), inside, fill)


def _centers(side: int, images: Images) -> Float64[Tensor, " {side}"]:
    return torch.arange(side, device=images.device, dtype=torch.float64) + 0.5


def _split(place: Float64[Tensor, "b h w"]) -> tuple[Tensor, Tensor]:
    """The index of the pixel whose center precedes a coordinate, and the distance from it."""
    place = place - 0.5
    before = place.floor()
    return before.long(), place - before


def _rotation(degrees: float, height: int, width: int) -> tuple[float, ...]:
    """The affine map from a pixel of the rotated image to one of the image, as in Pillow."""
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


Curve = Callable[[Sequence[Tensor], Tensor], Tensor]


def _linear(around: Sequence[Tensor], distance: Tensor) -> Float64[Tensor, "b c ..."]:
    """The value at `distance` between two neighbors; changes them."""
    before, after = around
    return after.sub_(before).mul_(distance).add_(before)


def _cubic(around: Sequence[Tensor], distance: Tensor) -> Float64[Tensor, "b c ..."]:
    """The value at `distance` between the middle two of four neighbors; changes them."""
    v1, v2, v3, v4 = around
    slope = v3 - v1
    third = (v2 - v1).sub_(v3).add_(v4)
    second = v1.sub_(v2).mul_(2).add_(v3).sub_(v4)
    value = third.mul_(distance).add_(second).mul_(distance).add_(slope)
    return value.mul_(distance).add_(v2)


def _kernels(cubic: Kernels) -> Iterator[tuple[Tensor, Curve, range]]:
    """The images of each kernel, its curve, and the neighbors that it takes."""
    for chosen, curve, reach in (
        ((~cubic).nonzero().ravel(), _linear, range(2)),
        (cubic.nonzero().ravel(), _cubic, range(-1, 3)),
    ):
        if len(chosen):
            yield chosen, curve, reach


def _filled(pixels: Images, inside: Bool[Tensor, "b h w"], fill: Sequence[int]) -> Images:
    # Products of bytes are several times faster than a choice between them.
    color = torch.tensor(fill, device=pixels.device, dtype=torch.uint8)[:, None, None]
    mask = inside[:, None].byte()
    return pixels.mul_(mask).add_(color * (1 - mask))
