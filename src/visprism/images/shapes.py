"""Shapes: a procedural image set that needs no download.

Each image shows one of ten silhouettes at a random place, size and angle, filled with one of
ten textures, before a background of another texture. Shape and texture are independent and both
are known, so that shape bias can be measured. An image depends on its seed, split and position
only; it is drawn on the plane, so that any size shows the same picture.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64, Integer, UInt8, UInt32, UInt64
from PIL import Image

from visprism.core.errors import InputError
from visprism.core.run import stream
from visprism.images.image_set import DATA, ImageSet, chosen_split
from visprism.images.silhouettes import SILHOUETTES
from visprism.images.textures import TEXTURES, coverage

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
# How shape and texture go together: each pair equally often; texture i with shape i alone; any
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
CENTERD = (-0.5, 0.5)

PerImage = Float[np.ndarray, " b"]
Plane = Float[np.ndarray, "_ h w"]


@dataclass(frozen=True)
class TexturedSurface:
    """How textures are laid out and colored; one row per image."""

    texture: Int64[np.ndarray, " b"]  # index into TEXTURES
    period: PerImage
    angle: PerImage
    x: PerImage  # its origin; the image reaches from -0.5 to 0.5
    y: PerImage
    key: UInt32[np.ndarray, " b"]  # of a random texture
    contrast: PerImage
    chroma: PerImage
    lightness: PerImage  # mean of its two colors
    hues: Float[np.ndarray, "2 b"]  # of the dark one and the light one, in turns


@dataclass(frozen=True)
class Scenes:
    """Content of the images; one row per image."""

    shape: Int64[np.ndarray, " b"]  # index into SILHOUETTES
    scale: PerImage
    angle: PerImage
    x: PerImage
    y: PerImage
    filling: TexturedSurface
    background: TexturedSurface


def scenes(key: int, positions: Int64[np.ndarray, " b"], cues: str = "independent") -> Scenes:
    """Content of the images at these positions.

    Each hundred of consecutive images holds every pair of a shape and a texture once, if they
    are independent.
    """
    draw = iter(uniform_numbers(key, positions, 32))
    shape, texture = labels(positions, cues)
    other = (texture + 1 + (9 * next(draw)).astype(np.int64)) % 10
    scale = _between(SCALE, draw)
    room = SPREAD * (1 - 1.36 * scale)  # some tips are cut off by the image's edge
    lightness, hue = _between(BACKGROUND, draw), next(draw)
    return Scenes(
        shape=shape,
        scale=scale,
        angle=_between(ANGLE, draw),
        x=room * _between(CENTERD, draw),
        y=room * _between(CENTERD, draw),
        filling=_surface(texture, lightness + _between(STEP, draw), hue + 0.5, BRIGHT, draw),
        background=_surface(other, lightness, hue, DULL, draw),
    )


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


def _surface(
    texture: Int64[np.ndarray, " b"],
    lightness: PerImage,
    hue: PerImage,
    chroma: tuple[float, float],
    draw: Iterator[PerImage],
) -> TexturedSurface:
    dark = hue + _between((-0.2, 0.2), draw)
    return TexturedSurface(
        texture=texture,
        period=_between(PERIOD, draw),
        angle=_between(TURN, draw),
        x=_between(CENTERD, draw),
        y=_between(CENTERD, draw),
        key=(next(draw) * 2**32).astype(np.uint32),
        contrast=_between(CONTRAST, draw),
        chroma=_between(chroma, draw),
        lightness=lightness,
        hues=np.stack([dark, dark + _between((-0.12, 0.12), draw)]),
    )


def _between(span: tuple[float, float], draw: Iterator[PerImage]) -> PerImage:
    low, high = span
    return low + (high - low) * next(draw)


def render(scenes: Scenes, size: int) -> UInt8[np.ndarray, "b {size} {size} 3"]:
    """Draw the images; the work is done for all images of one silhouette or texture at once."""
    at = (np.arange(size, dtype=np.float32) + 0.5) / size - 0.5
    x, y = np.broadcast_arrays(at[None, None, :], -at[None, :, None])
    inside = np.empty((len(scenes.shape), size, size), np.float32)
    for which, rows in _groups(scenes.shape, SILHOUETTES):
        scale = _column(scenes.scale[rows])
        u, v = _turned(x, y, scenes, rows)
        inside[rows] = coverage(-which(u / scale, v / scale), 1 / (size * scale))
    front, back = (_paint(s, x, y, size) for s in (scenes.filling, scenes.background))
    image = back + (front - back) * inside[..., None]
    return (255 * image.clip(0, 1) + 0.5).astype(np.uint8)


def _paint(
    surface: TexturedSurface, x: Plane, y: Plane, size: int
) -> Float[np.ndarray, "b h w 3"]:
    pattern = np.empty((len(surface.texture), size, size), np.float32)
    for which, rows in _groups(surface.texture, TEXTURES):
        period = _column(surface.period[rows])
        u, v = _turned(x, y, surface, rows)
        key = surface.key[rows][:, None, None]
        pattern[rows] = which(u / period, v / period, 1 / (size * period), key)
    # Red, green and blue lie a third of a turn apart.
    wheel = np.cos(2 * np.pi * (surface.hues[..., None] + np.arange(3) / 3))
    signs = np.array([-1, 1])[:, None]
    light = surface.lightness + signs * surface.contrast
    colors = light[..., None] + surface.chroma[:, None] * wheel
    dark, bright = colors.astype(np.float32)[:, :, None, None, :]
    return dark + (bright - dark) * pattern[..., None]


def _groups(kinds: Int64[np.ndarray, " b"], named: dict) -> Iterator[tuple]:
    """Each function of `named` that occurs in `kinds`, and where."""
    for kind, function in enumerate(named.values()):
        (rows,) = np.nonzero(kinds == kind)
        if len(rows):
            yield function, rows


def _turned(x: Plane, y: Plane, thing: Scenes | TexturedSurface, rows: np.ndarray) -> tuple:
    """Coordinates around the thing's origin, along its own axes."""
    x, y = x - _column(thing.x[rows]), y - _column(thing.y[rows])
    cos, sin = _column(np.cos(thing.angle[rows])), _column(np.sin(thing.angle[rows]))
    return cos * x + sin * y, cos * y - sin * x


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
            for image in render(scenes(key, chosen[start : start + at_once], cues), size)
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
