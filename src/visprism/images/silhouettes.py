"""Silhouettes: the ten outlines of the shapes data set, as signed distances.

Each function takes the coordinates of points, (x, y) with y upwards, and returns how far they
lie outside the outline, negative inside. Every silhouette covers an area of 1, so that the
filled fraction of the image does not reveal the class, and no silhouette is a rotation of
another.
"""

import math
from collections.abc import Callable

import numpy as np

Points = np.ndarray
Silhouette = Callable[[Points, Points], Points]


def _disk(x: Points, y: Points, radius: float) -> Points:
    return np.hypot(x, y) - radius


def _box(x: Points, y: Points, half_width: float, half_height: float) -> Points:
    return np.maximum(np.abs(x) - half_width, np.abs(y) - half_height)


def _beyond(x: Points, y: Points, degrees: int, offset: float) -> Points:
    """Distance beyond a straight line `offset` away from the origin in this direction."""
    angle = math.radians(degrees)
    return math.cos(angle) * x + math.sin(angle) * y - offset


def disk(x: Points, y: Points) -> Points:
    """A filled circle."""
    return _disk(x, y, 0.564)


def ring(x: Points, y: Points) -> Points:
    """A circle with a hole of half its width."""
    return np.abs(np.hypot(x, y) - 0.489) - 0.163


def crescent(x: Points, y: Points) -> Points:
    """A disk less a smaller one beside its center."""
    return np.maximum(_disk(x - 0.257, y, 0.77), 0.556 - np.hypot(x - 0.61, y))


def square(x: Points, y: Points) -> Points:
    """Four equal sides."""
    return _box(x, y, 0.5, 0.5)


def triangle(x: Points, y: Points) -> Points:
    """Three equal sides."""
    sides = (_beyond(x, y, degrees, 0.4387) for degrees in (30, 150, 270))
    return np.maximum.reduce(list(sides))


def star(x: Points, y: Points) -> Points:
    """Five points."""
    # Folded onto one half of one point; its edge runs from the tip to the notch.
    angle = np.abs((np.arctan2(x, y) + math.pi / 5) % (math.tau / 5) - math.pi / 5)
    radius = np.hypot(x, y)
    along, across = radius * np.cos(angle), radius * np.sin(angle)
    tip, notch = 0.865, 0.394
    dx, dy = notch * math.cos(math.pi / 5) - tip, notch * math.sin(math.pi / 5)
    return ((along - tip) * dy - across * dx) / math.hypot(dx, dy)


def cross(x: Points, y: Points) -> Points:
    """Two bars at a right angle, like a plus sign."""
    return np.minimum(_box(x, y, 0.705, 0.208), _box(x, y, 0.208, 0.705))


def heart(x: Points, y: Points) -> Points:
    """A square on its corner with a half disk on each upper side."""
    side, y = 0.75, y + 0.12
    u, v = (x + y) / math.sqrt(2), (y - x) / math.sqrt(2)
    body = _box(u, v, side / 2, side / 2)
    lobes = np.minimum(_disk(u - side / 2, v, side / 2), _disk(u, v - side / 2, side / 2))
    return np.minimum(body, lobes)


def arrow(x: Points, y: Points) -> Points:
    """A triangular head on a shaft."""
    head = np.maximum(0.06 - y, _beyond(np.abs(x), y, 45, 0.5925))
    return np.minimum(head, _box(x, y + 0.41, 0.2, 0.5))


def hourglass(x: Points, y: Points) -> Points:
    """Two triangles that touch at a tip."""
    return np.maximum(np.abs(y) - 0.643, _beyond(np.abs(x), np.abs(y), -45, 0.0487))


_ALL = (
    arrow, crescent, cross, disk, heart,
    hourglass, ring, square, star, triangle,
)  # fmt: skip
SILHOUETTES: dict[str, Silhouette] = {function.__name__: function for function in _ALL}
