"""Shapes: a procedural image set that needs no download.

Each image shows one of ten silhouettes at a random place, size and angle, filled with one of
ten textures, before a background of another texture. Shape and texture are independent and both
are known, so that shape bias can be measured. An image depends on its seed, split and position
only; it is drawn on the plane, so that any size shows the same picture.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int64, Integer, UInt8, UInt64
from PIL import Image

from visprism.core.errors import InputError
from visprism.core.run import stream
from visprism.images.image_set import DATA, ImageSet, chosen_split

Plane = np.ndarray  # (b, h, w)
PerImage = np.ndarray  # (b,), or (b, 1, 1) with a plane


# Textures, as functions of (u, v) in periods of the pattern, the side of a pixel in the same
# unit, by which edges are softened, and a key that makes the random ones random. They return
# values in 0 ... 1. A pattern is the same at every resolution.


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

    Source: the mixing constants are from Wellons (2018), Prospecting for hash functions.
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


TEXTURES: dict[str, Callable[..., Plane]] = {
    function.__name__: function
    for function in (
        bricks, cells, checks, clouds, dots, grain, ripples, scales, stripes, zigzag,
    )
}  # fmt: skip

# Silhouettes, as functions of points (x, y) with y upwards: how far a point lies outside the
# outline, negative inside. Each covers an area of 1, so that the filled fraction of the image
# does not reveal the class, and none is a rotation of another.
Points = np.ndarray


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
    """A disk less a smaller one next to its center."""
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


SILHOUETTES: dict[str, Callable[..., Points]] = {
    function.__name__: function
    for function in (
        arrow, crescent, cross, disk, heart, hourglass, ring, square, star, triangle,
    )
}  # fmt: skip


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mixed(x: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform_numbers(
    key: int, positions: Integer[np.ndarray, " b"], count: int
) -> Float[np.ndarray, "{count} b"]:
    """`count` uniform numbers in [0, 1) for each position.

    Source: Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators, fig. 16.
    """
    of_position = _mixed(np.array([key], np.uint64) + positions.astype(np.uint64) * _GAMMA)
    turns = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    return (_mixed(of_position + turns[:, None]) >> np.uint64(11)) / float(1 << 53)


COUNTS = {"train": 50_000, "test": 10_000}  # as many as CIFAR-10 has
TARGETS = {"shape": tuple(SILHOUETTES), "texture": tuple(TEXTURES)}
# How shape and texture go together: each pair equally often; texture i only with shape i; any
# texture but that. A model that learns where they agree can go by either.
CUES = ("independent", "agree", "conflict")

# Ranges of what is drawn at random; docs/data.md says how hard they make it. The filling is
# lighter and has more color than the background, in whatever hues.
SCALE = (0.42, 0.6)  # side of the square that has a silhouette's area; the image's side is 1
ANGLE = (-np.pi / 3, np.pi / 3)  # of a silhouette
SPREAD = 1.0  # of the room around a silhouette, the part that its center is placed in
PERIOD = (0.15, 0.24)  # of a texture
BACKGROUND = (0.2, 0.45)  # lightness, from black to white
STEP = (0.18, 0.34)  # in lightness, from the background to the filling
CONTRAST = (0.06, 0.13)  # of a texture: half the step between its two colors
DULL, BRIGHT = (0.01, 0.07), (0.13, 0.24)  # chroma of background and filling; 0 is gray
TURN = (0.0, 2 * np.pi)
CENTERED = (-0.5, 0.5)  # the image reaches from -0.5 to 0.5

Between = Callable[[float, float], PerImage]  # the next random numbers, in this range


def render(
    key: int, positions: Int64[np.ndarray, " b"], size: int, cues: str = "independent"
) -> UInt8[np.ndarray, "b {size} {size} 3"]:
    """Draw the images at these positions.

    Each hundred of consecutive images holds every pair of a shape and a texture once, if they
    are independent.
    """
    numbers = iter(uniform_numbers(key, positions, 32))

    def between(low: float, high: float) -> PerImage:
        return low + (high - low) * next(numbers)

    shape, texture = labels(positions, cues)
    other = (texture + 1 + (9 * next(numbers)).astype(np.int64)) % 10
    scale = between(*SCALE)
    room = SPREAD * (1 - 1.36 * scale)  # some tips are cut off by the image's edge
    lightness, hue = between(*BACKGROUND), next(numbers)
    angle, x, y = between(*ANGLE), room * between(*CENTERED), room * between(*CENTERED)
    u, v = _coordinates(size, angle, x, y, scale)
    inside = coverage(-_by_kind(SILHOUETTES, shape, u, v), 1 / (size * _column(scale)))
    lighter = lightness + between(*STEP)
    front = _painted(size, texture, lighter, hue + 0.5, BRIGHT, between)
    back = _painted(size, other, lightness, hue, DULL, between)
    image = back + (front - back) * inside[..., None]
    return (255 * image.clip(0, 1) + 0.5).astype(np.uint8)


def labels(
    positions: Int64[np.ndarray, " b"], cues: str = "independent"
) -> tuple[np.ndarray, np.ndarray]:
    """Shape and texture of the images at these positions."""
    shape, turn = positions % len(SILHOUETTES), positions // len(SILHOUETTES)
    if cues == "agree":
        return shape, shape
    if cues == "conflict":
        return shape, (shape + 1 + turn % (len(TEXTURES) - 1)) % len(TEXTURES)
    return shape, turn % len(TEXTURES)


def _painted(
    size: int,
    texture: Int64[np.ndarray, " b"],
    lightness: PerImage,
    hue: PerImage,
    chroma: tuple[float, float],
    between: Between,
) -> Float[np.ndarray, "b h w 3"]:
    """A random layout of each texture in two colors, whose mean has this lightness."""
    dark = hue + between(-0.2, 0.2)  # in turns, as all hues
    period = between(*PERIOD)
    u, v = _coordinates(size, between(*TURN), between(*CENTERED), between(*CENTERED), period)
    key = (between(0.0, 1.0) * 2**32).astype(np.uint32)[:, None, None]
    pattern = _by_kind(TEXTURES, texture, u, v, 1 / (size * _column(period)), key)
    contrast, color = between(*CONTRAST), between(*chroma)
    hues = np.stack([dark, dark + between(-0.12, 0.12)])
    # Red, green and blue lie a third of a turn apart.
    wheel = np.cos(2 * np.pi * (hues[..., None] + np.arange(3) / 3))
    light = lightness + np.array([-1, 1])[:, None] * contrast
    colors = light[..., None] + color[:, None] * wheel
    dark, bright = colors.astype(np.float32)[:, :, None, None, :]
    return dark + (bright - dark) * pattern[..., None]


def _by_kind(functions: dict, kinds: Int64[np.ndarray, " b"], *arguments: np.ndarray) -> Plane:
    """The values of each image's own function; one call for all images of a kind."""
    values = np.empty_like(arguments[0])
    for kind, function in enumerate(functions.values()):
        (rows,) = np.nonzero(kinds == kind)
        if len(rows):
            values[rows] = function(*(argument[rows] for argument in arguments))
    return values


def _coordinates(
    size: int, angle: PerImage, x: PerImage, y: PerImage, unit: PerImage
) -> tuple[Plane, Plane]:
    """Coordinates of the pixels around (x, y), turned by the angle, in multiples of a unit."""
    at = (np.arange(size, dtype=np.float32) + 0.5) / size - 0.5
    across, up = at[None, None, :] - _column(x), -at[None, :, None] - _column(y)
    cos, sin = _column(np.cos(angle)), _column(np.sin(angle))
    return (cos * across + sin * up) / _column(unit), (cos * up - sin * across) / _column(unit)


def _column(values: PerImage) -> Float[np.ndarray, "b 1 1"]:
    return values.astype(np.float32)[:, None, None]


@DATA.register
def shapes(
    *,
    split: str | None = None,
    size: int = 32,
    target: str = "shape",
    cues: str = "independent",
    seed: int = 0,
) -> ImageSet:
    """Ten silhouettes filled with ten textures, drawn as they are needed, at any `size`."""
    if cues not in CUES:
        raise InputError(f"cues must be one of {', '.join(CUES)}, got {cues!r}")
    if target not in TARGETS:
        raise InputError(f"target must be {' or '.join(TARGETS)}, got {target!r}")
    if not 8 <= size <= 4096:
        raise InputError(f"size must be 8 to 4096 pixels, got {size}")
    split = chosen_split(tuple(COUNTS), split, "shapes")
    key = stream(seed, "shapes", split).initial_seed()
    positions = np.arange(COUNTS[split])

    def read(indices: Sequence[int]) -> list[Image.Image]:
        at_once = max(1, 2**18 // size**2)  # so many images that they stay in the cache
        chosen = np.array(indices, np.int64)
        return [
            Image.fromarray(image)
            for start in range(0, len(chosen), at_once)
            for image in render(key, chosen[start : start + at_once], size, cues)
        ]

    both = dict(zip(TARGETS, labels(positions, cues), strict=True))
    return ImageSet(
        source="shapes",
        split=split,
        class_names=TARGETS[target],
        targets=both[target],
        read=read,
        textures=both["texture"],
    )
