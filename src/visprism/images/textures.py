"""Textures: the ten patterns of the shapes data set, as functions of the plane.

Each function takes coordinates (u, v) in periods of the pattern, the side of a pixel in the
same unit, by which edges are softened, and a key that makes the random ones random. It returns
values in 0 ... 1. A pattern is the same at every resolution.
"""

from collections.abc import Callable

import numpy as np

Plane = np.ndarray  # (b, h, w)
PerImage = np.ndarray  # (b, 1, 1)
Texture = Callable[[Plane, Plane, PerImage, PerImage], Plane]


def coverage(distance: Plane, pixel: PerImage) -> Plane:
    """Fraction of a pixel that lies outside a straight edge `distance` before its center."""
    return np.clip(distance / pixel + 0.5, 0, 1)


def _fraction(x: Plane) -> Plane:
    return x - np.floor(x)


def _wave(x: Plane) -> Plane:
    """Distance to the nearest odd multiple of a half: a triangular wave of period 1."""
    return np.abs(_fraction(x) - 0.5)


def _lattice(column: Plane, row: Plane, key: PerImage) -> Plane:
    """A random number in 0 ... 1 for each point of the integer lattice, always the same.

    Source: the mixing constants are those of Wellons (2018), Prospecting for hash functions.
    """
    x = column.astype(np.int32).view(np.uint32) * np.uint32(0x9E3779B1)
    y = row.astype(np.int32).view(np.uint32) * np.uint32(0x85EBCA77)
    bits = (x ^ key) + y
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x7FEB352D)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x846CA68B)
    bits ^= bits >> np.uint32(16)
    return (bits >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24)


def _interpolated(u: Plane, v: Plane, key: PerImage, blend: Callable[[Plane], Plane]) -> Plane:
    """The random lattice between its points; `blend` maps 0 ... 1 to the weight of the next."""
    column, row = np.floor(u), np.floor(v)
    right, down = blend(u - column), blend(v - row)
    near = _lattice(column, row, key) * (1 - right) + _lattice(column + 1, row, key) * right
    row += 1
    far = _lattice(column, row, key) * (1 - right) + _lattice(column + 1, row, key) * right
    return near * (1 - down) + far * down


def stripes(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Straight bands."""
    return coverage(_wave(u) - 0.25, pixel)


def zigzag(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Zigzag bands with right angles."""
    return coverage(_wave(u + _wave(v) * 1.4) - 0.25, 1.7 * pixel)


def ripples(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Circles around one point."""
    return coverage(_wave(np.hypot(u, v)) - 0.25, pixel)


def checks(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """A chess board."""
    a, b = coverage(_wave(u) - 0.25, pixel), coverage(_wave(v) - 0.25, pixel)
    return a * b + (1 - a) * (1 - b)


def bricks(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Courses of bricks, each shifted by half of one."""
    shifted = u + 0.5 * (np.floor(2 * v) % 2)
    to_joint = np.minimum(0.5 - _wave(shifted), 0.25 - 0.5 * _wave(2 * v))
    return coverage(to_joint - 0.07, pixel)


def dots(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Discs on a honeycomb."""
    height = 0.866  # of a row, for a distance of 1 between neighbors
    across = _fraction(u + 0.5 * (np.floor(v / height) % 2)) - 0.5
    along = (_fraction(v / height) - 0.5) * height
    return coverage(np.hypot(across, along) - 0.3, pixel)


def scales(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Overlapping discs, as of a fish, each shaded towards its rim."""
    row = np.floor(2 * v)
    below = np.hypot(_fraction(u + 0.5 * (row % 2)) - 0.5, v - 0.5 * row)
    above = np.hypot(_fraction(u + 0.5 * ((row + 1) % 2)) - 0.5, v - 0.5 * row - 0.5)
    hidden = coverage(below - 0.5, pixel)
    return np.clip(2 * (below * (1 - hidden) + above * hidden), 0, 1) ** 2


def cells(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Random polygons with a gap between them, as of dry mud.

    Source: Worley (1996), A cellular texture basis function.
    """
    column, row = np.floor(u), np.floor(v)
    first = np.full_like(u, np.inf)
    second = np.full_like(u, np.inf)
    for i in (-1, 0, 1):
        for j in (-1, 0, 1):
            x, y = column + i, row + j
            distance = np.hypot(
                x + 0.15 + 0.7 * _lattice(x, y, key) - u,
                y + 0.15 + 0.7 * _lattice(x, y, key ^ np.uint32(1)) - v,
            )
            second = np.minimum(second, np.maximum(first, distance))
            first = np.minimum(first, distance)
    return coverage(second - first - 0.16, 2 * pixel)


def clouds(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """Smooth noise of two octaves."""

    def smooth(x: Plane) -> Plane:
        return x * x * (3 - 2 * x)

    coarse = _interpolated(u, v, key, smooth)
    fine = _interpolated(2 * u, 2 * v, key ^ np.uint32(1), smooth)
    return np.clip(2 * (0.7 * coarse + 0.3 * fine) - 0.5, 0, 1)


def grain(u: Plane, v: Plane, pixel: PerImage, key: PerImage) -> Plane:
    """A mosaic of small random squares."""
    fineness = 3
    return _interpolated(
        fineness * u, fineness * v, key, lambda x: coverage(x - 0.5, fineness * pixel)
    )


_ALL = (
    bricks, cells, checks, clouds, dots,
    grain, ripples, scales, stripes, zigzag,
)  # fmt: skip
TEXTURES: dict[str, Texture] = {function.__name__: function for function in _ALL}
