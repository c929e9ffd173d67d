"""Extent of receptive fields, from sums over images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from visprism.anatomy import Block
from visprism.core.statistics import standard_error
from visprism.measure.features.per_block import block_columns
from visprism.results.receptive_field import ReceptiveField, ReceptiveMaps

_CELLS = 56  # most along a side of a map that is drawn


@dataclass(frozen=True)
class Fields:
    """What is added up over images about one block's field."""

    total: Float[np.ndarray, "h w"]
    products: Float[np.ndarray, "5 5"]  # of `moments`, for errors

    def __add__(self, other: "Fields") -> "Fields":
        return Fields(self.total + other.total, self.products + other.products)


def fields_of(weight: Float[Tensor, "b h w"]) -> Fields:
    """The sums over the images of a batch; `weight` is the weight of each pixel."""
    fields = weight.double().cpu().numpy()
    moments = _moments(fields)
    return Fields(fields.sum(0), moments @ moments.T)


def _places(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each pixel from the middle of the image, as axes to broadcast."""
    return (np.arange(height) - (height - 1) / 2)[:, None], np.arange(width) - (width - 1) / 2


def _moments(fields: Float[np.ndarray, "b h w"]) -> Float[np.ndarray, "5 b"]:
    """1, mass, and mass times row, column and squared distance, of each image's field."""
    row, column = _places(*fields.shape[1:])
    factors = (np.ones_like(fields[0]), row, column, row**2 + column**2)
    return np.stack([np.ones(len(fields)), *((fields * f).sum((1, 2)) for f in factors)])


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
    images, mass, by_row, by_column, squares = fields.products[0]
    mass = mass if mass > 0 else np.nan
    row, column = by_row / mass, by_column / mass
    variance = max(0.0, (squares / mass - row**2 - column**2) / 2) + 0 * mass
    sigma = float(np.sqrt(variance))
    # The delta method: what each image adds to the variance, less its part of the mean.
    part = [0, (row**2 + column**2) / 2 - variance, -row, -column, 0.5]
    spread = np.einsum("i,ij,j->", part, fields.products, part)
    error = standard_error(np.zeros(1), np.array([spread]), np.array([images])).item()
    variance_error = error * images / mass  # 0 where every field is one pixel, and sigma 0
    middle = row + (height - 1) / 2, column + (width - 1) / 2
    sides = {t: _side(fields.total, (row, column), t / 100) for t in (20, 30, 50, 95, 99)}
    areas = {t: _inside((height, width), middle, sides[t]) for t in (20, 30, 50, 99)}
    return {
        "sigma": sigma,
        "sigma_error": variance_error / (2 * sigma or 1.0),
        **{f"side_{t}": sides[t] for t in (50, 95)},
        **{f"area_{t}": area for t, area in areas.items()},
        "row": middle[0],
        "column": middle[1],
    }


def _side(
    total: Float[np.ndarray, "h w"], middle: tuple[float, float], threshold: float
) -> float:
    """Side of the smallest square about `middle` whose pixels hold this share of the field."""
    row, column = _places(*total.shape)
    # Rounded, so that pixels of one ring have equal distances despite rounding of the middle.
    distance = np.maximum(abs(row - middle[0]), abs(column - middle[1])).round(6).ravel()
    order = distance.argsort()
    held = total.ravel()[order].cumsum()
    if not held[-1] > 0:
        return np.nan
    # One part in 10^9 is rounding: a ring that just holds the threshold does hold it.
    first = np.searchsorted(held, threshold * held[-1] * (1 - 1e-9))
    return 2 * distance[order[first]].item() + 1


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
