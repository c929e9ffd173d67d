"""Extent of receptive fields, from sums over images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from visprism.anatomy import Block
from visprism.core.statistics import standard_error
from visprism.passes.blocks import block_columns
from visprism.results.per_image import PerImage
from visprism.results.receptive_field import LAST_SIGMA, ReceptiveField, ReceptiveMaps

_CELLS = 56  # most along a side of a map that is drawn


@dataclass(frozen=True)
class Fields:
    """What is added up over images about one block's field."""

    total: Float[np.ndarray, "h w"]
    moments: tuple[Float[np.ndarray, "5 _"], ...]  # see `_moments`; one array for each batch

    def __add__(self, other: "Fields") -> "Fields":
        return Fields(self.total + other.total, self.moments + other.moments)

    def of_images(self) -> Float[np.ndarray, "5 n"]:
        """The moments of every image, in the order of the batches."""
        return np.concatenate(self.moments, axis=1)


def in_turn(parts: Sequence[Fields]) -> Fields:
    """The fields of several processes as one; they took turns with the batches."""
    turns = zip_longest(*(part.moments for part in parts))
    moments = tuple(m for turn in turns for m in turn if m is not None)
    return Fields(sum((p.total for p in parts[1:]), parts[0].total), moments)


def fields_of(weight: Float[Tensor, "b h w"]) -> Fields:
    """The sums over the images of a batch; `weight` is the weight of each pixel."""
    fields = weight.double().cpu().numpy()
    return Fields(fields.sum(0), (_moments(fields),))


def _places(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each pixel from the middle of the image, as axes to broadcast."""
    return (np.arange(height) - (height - 1) / 2)[:, None], np.arange(width) - (width - 1) / 2


def _moments(fields: Float[np.ndarray, "b h w"]) -> Float[np.ndarray, "5 b"]:
    """1, mass, and mass times row, column and squared distance, of each image's field."""
    row, column = _places(*fields.shape[1:])
    of_rows, of_columns = fields.sum(2), fields.sum(1)
    row = row[:, 0]
    squares = of_rows @ row**2 + of_columns @ column**2
    ones = np.ones(len(fields))
    return np.stack([ones, of_rows.sum(1), of_rows @ row, of_columns @ column, squares])


def sigma_of_images(fields: Mapping[Block, Fields], sizes: ReceptiveField) -> PerImage:
    """The linearized sigma of the last block that depends on the image, for each image.

    Sigma is a function of sums over images. A value is sigma plus the influence of an image, to
    first order, so that the values have the mean sigma and the spread of its standard error.
    """
    rows = np.flatnonzero(np.isfinite(sizes.sigma))
    if not len(rows):
        none = np.zeros(0)
        return PerImage(quantity=none.astype(str), image=none.astype(int), value=none)
    moments = list(fields.values())[rows[-1]].of_images()
    images, sigma = moments.shape[1], float(sizes.sigma[rows[-1]])
    influence = _variance_influence(moments) / (2 * sigma or 1.0)
    return PerImage(
        quantity=np.full(images, LAST_SIGMA), image=np.arange(images), value=sigma + influence
    )


def extents(fields: Mapping[Block, Fields]) -> ReceptiveField:
    """Sizes of all fields."""
    rows = [_extent(field) for field in fields.values()]
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    height, width = next(iter(fields.values())).total.shape
    return ReceptiveField(
        **block_columns(list(fields)),
        **columns,
        uniform_sigma=float(np.sqrt((height**2 + width**2 - 2) / 24)),
    )


def _extent(fields: Fields) -> dict[str, float]:
    """The numbers of one row of a `ReceptiveField`."""
    height, width = fields.total.shape
    moments = fields.of_images()
    variance, row, column = _spread(moments)
    sigma = float(np.sqrt(variance))
    influence = _variance_influence(moments)
    squares, images = np.array([(influence**2).sum()]), np.array([float(len(influence))])
    variance_error = standard_error(np.zeros(1), squares, images).item()  # 0 for one pixel
    middle = row + (height - 1) / 2, column + (width - 1) / 2
    sides = _sides(fields.total, (row, column), (20, 30, 50, 95, 99))
    areas = {t: _inside((height, width), middle, sides[t]) for t in (20, 30, 50, 99)}
    return {
        "sigma": sigma,
        "sigma_error": variance_error / (2 * sigma or 1.0),
        **{f"side_{t}": sides[t] for t in (50, 95)},
        **{f"area_{t}": area for t, area in areas.items()},
        "row": middle[0],
        "column": middle[1],
    }


def _spread(moments: Float[np.ndarray, "5 n"]) -> tuple[float, float, float]:
    """Variance along one axis, and row and column of the center of mass; NaN without mass."""
    _, mass, by_row, by_column, squares = moments.sum(1)
    mass = mass if mass > 0 else np.nan
    row, column = by_row / mass, by_column / mass
    return max(0.0, (squares / mass - row**2 - column**2) / 2) + 0 * mass, row, column


def _variance_influence(moments: Float[np.ndarray, "5 n"]) -> Float[np.ndarray, "n"]:
    """What each image adds to the variance to first order, with mean 0 (the delta method)."""
    variance, row, column = _spread(moments)
    part = np.array([0, (row**2 + column**2) / 2 - variance, -row, -column, 0.5])
    mean_mass = moments[1].mean() if moments[1].any() else np.nan
    return part @ moments / mean_mass


def _sides(
    total: Float[np.ndarray, "h w"], middle: tuple[float, float], percents: Sequence[int]
) -> dict[int, float]:
    """Sides of the smallest squares about `middle` that hold these shares of the field."""
    row, column = _places(*total.shape)
    # Rounded, so that pixels of one ring have equal distances despite rounding of the middle.
    distance = np.maximum(abs(row - middle[0]), abs(column - middle[1])).round(6).ravel()
    order = distance.argsort()
    held = total.ravel()[order].cumsum()
    if not held[-1] > 0:
        return dict.fromkeys(percents, np.nan)
    # One part in 10^9 is rounding: a ring that just holds the threshold does hold it.
    shares = np.array(percents) / 100 * held[-1] * (1 - 1e-9)
    farthest = distance[order[np.searchsorted(held, shares)]]
    return dict(zip(percents, (2 * farthest + 1).tolist(), strict=True))


def _inside(image: tuple[int, int], middle: tuple[float, float], side: float) -> float:
    """Fraction of the image that lies in the square."""
    reach = [
        min(length, at + 0.5 + side / 2) - max(0.0, at + 0.5 - side / 2)
        for length, at in zip(image, middle, strict=True)
    ]
    return reach[0] * reach[1] / (image[0] * image[1]) + 0 * side  # NaN stays NaN


def maps_of(fields: Mapping[Block, Fields], most: int) -> ReceptiveMaps:
    """The fields of at most `most` blocks, evenly spread, in cells."""
    blocks = list(fields)
    places = np.unique(np.linspace(0, len(blocks) - 1, min(most, len(blocks))).round())
    chosen = [blocks[i] for i in places.astype(int)]
    cells = [_in_cells(fields[block].total) for block in chosen]
    row, column = np.indices(cells[0].shape).reshape(2, -1)
    share = np.stack([c.ravel() / (c.sum() or np.nan) for c in cells])
    return ReceptiveMaps(
        block=np.repeat([b.name for b in chosen], len(row)),
        depth=np.repeat([b.depth for b in chosen], len(row)),
        row=np.tile(row, len(chosen)),
        column=np.tile(column, len(chosen)),
        share=share.ravel(),
        relative=(share / share.max(1, keepdims=True)).ravel(),
    )


def _in_cells(total: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "rows columns"]:
    """The sum over each cell, whose side is a power of two as patches and strides are."""
    side = 1
    while max(total.shape) > _CELLS * side:
        side *= 2
    map_ = torch.from_numpy(total)[None, None]
    return avg_pool2d(map_, side, ceil_mode=True, divisor_override=1)[0, 0].numpy()
