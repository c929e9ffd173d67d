"""Attention maps: where one query of one image looks, by attention and head."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Images, attend, attentions, batch_size, forward
from visprism.anatomy.trace.token_grids import OFF_GRID, AttentionGeometry
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.results.base import Result, result_type, scalar
from visprism.results.base import column as quantity

# A pixel (row, column) of the image; the class token; or all queries on the grid, averaged.
Query = tuple[int, int] | Literal["class", "mean"]


@result_type("attention-maps")
class AttentionMaps(Result):
    """Where one query looks; one row for each attention, head and place of its keys' grid."""

    block: np.ndarray = quantity(
        "Block", "", "name of the attention's block; '#2' for the second in one block"
    )
    head: np.ndarray = quantity("Head", "", "from 1")
    row: np.ndarray = quantity("Row", "", "of the grid of the keys")
    column: np.ndarray = quantity("Column")
    weight: np.ndarray = quantity(
        "Weight", "", "of all keys' weights, which add up to 1; 0 outside the query's window"
    )
    query: str = scalar("Query", "", "'class', 'mean', or 'row,column' in pixels")


def attention_maps(
    anatomy: Anatomy,
    images: Images,
    *,
    query: Query = "mean",
    blocks: Iterable[str] | None = None,
) -> AttentionMaps:
    """The weights of one query of one image, put back on the grid.

    Costs one forward pass.

    Args:
        anatomy: of a model in evaluation mode.
        images: a batch of one image.
        query: a pixel, whose token is asked, or the token nearest to it where tokens were
            dropped; "class", the first token that has no place; or "mean", the mean over all
            queries, which is how much each place is attended to.
        blocks: names of blocks; all that have attention by default.

    Raises:
        InputError: if there is no attention, more than one image, no such block or no such
            query.
    """
    check_one(images)
    chosen = _chosen(anatomy, blocks)
    columns: dict[str, list[np.ndarray]] = {"head": [], "row": [], "column": [], "weight": []}
    names: list[str] = []
    with torch.no_grad(), attend(anatomy, lambda w: _of_query(w.attention, w.values[0], query),
                                 only=chosen) as kept:  # fmt: skip
        forward(anatomy.model, images)
    for name, map_ in kept.items():
        head, row, column = np.indices(map_.shape).reshape(3, -1)
        names += [name] * map_.size
        for key, values in zip(columns, (head + 1, row, column, map_.ravel()), strict=True):
            columns[key].append(values)
    return AttentionMaps(
        block=np.array(names),
        **{key: np.concatenate(values) for key, values in columns.items()},
        query=query if isinstance(query, str) else ",".join(map(str, query)),
        provenance=provenance_of(anatomy),
    )


def _chosen(anatomy: Anatomy, blocks: Iterable[str] | None) -> tuple[Attention, ...]:
    known = attentions(anatomy)
    if blocks is None:
        return known
    wanted = list(blocks)
    names = [attention.name for attention in known]
    for name in wanted:
        if name not in names:
            raise InputError(f"no attention is called {name!r}; there are {', '.join(names)}")
    return tuple(attention for attention in known if attention.name in wanted)


def check_one(images: Images) -> None:
    """Whether there is one image.

    Raises:
        InputError: if there are more.
    """
    if batch_size(images) != 1:
        raise InputError(f"maps are of one image, got {batch_size(images)}; pass images[:1]")


def _of_query(
    attention: Attention, weights: Float[Tensor, "windows heads queries keys"], query: Query
) -> Float[np.ndarray, "heads rows columns"]:
    """The weights of one query on the grid of the keys."""
    places = attention.geometry.queries
    if query == "mean":
        share = places.index != OFF_GRID
        per_window = torch.from_numpy(share / max(1, share.sum())).to(weights)
        of_all = torch.einsum("whqk,wq->whk", weights, per_window)
        maps = [on_grid(each, attention.geometry, i) for i, each in enumerate(of_all)]
        return np.sum(maps, axis=0)
    if query == "class":
        if len(places.index) > 1 or places.index[0, 0] != OFF_GRID:
            raise InputError(
                f"{attention.name!r} has no class token; ask for 'mean' or for a pixel"
            )
        return on_grid(weights[0, :, 0], attention.geometry, 0)
    window, token = _nearest(attention, query)
    return on_grid(weights[window, :, token], attention.geometry, window)


def _nearest(attention: Attention, pixel: tuple[int, int]) -> tuple[int, int]:
    """Window and number of the query whose place is nearest to a pixel."""
    (height, width), (y, x) = attention.image, pixel
    if not (0 <= y < height and 0 <= x < width):
        raise InputError(
            f"the query {y},{x} lies outside of the image of {height}x{width} pixels; rows and "
            "columns count from 0"
        )
    places = attention.geometry.queries
    rows, columns = places.grid
    row, column = places.index // columns, places.index % columns
    away = np.hypot(
        (row + 0.5) * height / rows - y - 0.5, (column + 0.5) * width / columns - x - 0.5
    )
    away = np.where(places.index == OFF_GRID, np.inf, away)
    window, token = np.unravel_index(away.argmin(), away.shape)
    return int(window), int(token)


def on_grid(
    weights: Float[Tensor, "heads keys"], attended: AttentionGeometry, window: int
) -> Float[np.ndarray, "heads rows columns"]:
    """Weights of keys at their places."""
    rows, columns = attended.keys.grid
    index = attended.keys.index[window]
    placed = index != OFF_GRID
    map_ = np.zeros((len(weights), rows * columns))
    map_[:, index[placed]] = weights.detach().cpu().double().numpy()[:, placed]
    return map_.reshape(-1, rows, columns)


def provenance_of(anatomy: Anatomy) -> Provenance:
    """What is known of a map of one image."""
    shape = anatomy.image_shape
    return replace(Provenance(), images=1, image_shape=shape, batch_size=1)
