"""Attention maps: the weights of one query of one image, by attention and head."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Images, attend, attentions, batch_size, forward
from visprism.anatomy.trace.token_grids import OFF_GRID, AttentionGeometry
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.passes.batches import check_evaluation_mode, image_shape, images_of
from visprism.passes.tokens_of_the_head import tokens_read
from visprism.results.attention import AttentionMaps

# A pixel (row, column) of the image; the class token; or all queries on the grid, averaged.
Query = tuple[int, int] | Literal["class", "mean"]


def attention_maps(
    anatomy: Anatomy,
    images: Images,
    *,
    query: Query = "mean",
    blocks: Iterable[str] | None = None,
    run: Run = DEFAULT_RUN,
) -> AttentionMaps:
    """The weights of one query of one image on the token grid.

    Costs one forward pass; with ``query="class"`` another one, and a backward pass of the head.

    Args:
        anatomy: of a model in evaluation mode.
        images: a batch of one image.
        query: a pixel (row, column), of which the token is taken that holds it, or the nearest
            one where tokens were dropped; "class", the first token off the grid that the head
            reads, never a register; or "mean", the mean over all queries on the grid.
        blocks: names of blocks; all that have attention by default.
        run: device, precision and provenance.
    """
    images = single_image(anatomy, images, run)
    chosen = _chosen(anatomy, blocks)
    columns: dict[str, list[np.ndarray]] = {"head": [], "row": [], "column": [], "weight": []}
    names: list[str] = []
    with run.compute.borrow(anatomy.model):
        read = _class_tokens(anatomy, images) if query == "class" and chosen else None
        with torch.no_grad(), run.compute.autocast(), attend(
            anatomy, lambda w: _of_query(w.attention, w.values[0].float(), query, read),
            only=chosen,
        ) as maps:  # fmt: skip
            forward(anatomy.model, images)
    for name, map_ in maps.items():
        head, row, column = np.indices(map_.shape).reshape(3, -1)
        names += [name] * map_.size
        for key, values in zip(columns, (head + 1, row, column, map_.ravel()), strict=True):
            columns[key].append(values)
    return AttentionMaps(
        block=np.array(names),
        **{key: np.concatenate(values) for key, values in columns.items()},
        query=query if isinstance(query, str) else ",".join(map(str, query)),
        provenance=provenance_of(anatomy, run),
    )


def _chosen(anatomy: Anatomy, blocks: Iterable[str] | None) -> tuple[Attention, ...]:
    available = attentions(anatomy)
    if blocks is None:
        return available
    wanted = list(blocks)
    names = [attention.name for attention in available]
    for name in wanted:
        if name not in names:
            raise InputError(f"blocks must be of {', '.join(names)}, got {name!r}")
    return tuple(attention for attention in available if attention.name in wanted)


def _class_tokens(anatomy: Anatomy, images: Images) -> Bool[np.ndarray, "others"]:
    """Whether the head reads each token off the grid, of those of the last attention."""
    last = attentions(anatomy)[-1]
    outside = last.geometry.keys.index[0] == OFF_GRID
    if len(last.geometry.keys.index) > 1 or not outside.any():
        return np.zeros(0, dtype=bool)
    return tokens_read(anatomy, last, images)[outside]


def single_image(anatomy: Anatomy, images: Images, run: Run) -> Images:
    """The one image of a batch, on the device."""
    check_evaluation_mode(anatomy.model)
    if batch_size(images) != 1:
        raise InputError(
            f"images must be a batch of one image, got {batch_size(images)}. Pass images[:1]."
        )
    return images_of(images, anatomy, run.compute)


def _of_query(
    attention: Attention,
    weights: Float[Tensor, "windows heads queries keys"],
    query: Query,
    read: Bool[np.ndarray, "others"] | None,
) -> Float[np.ndarray, "heads rows columns"]:
    """The weights of one query on the grid of the keys."""
    geometry, places = attention.geometry, attention.geometry.queries
    if query == "mean":
        on_grid = places.index != OFF_GRID
        per_window = torch.from_numpy(on_grid / max(1, on_grid.sum())).to(weights)
        means = torch.einsum("whqk,wq->whk", weights, per_window)
        return np.sum([key_map(mean, geometry, i) for i, mean in enumerate(means)], axis=0)
    if query == "class":
        outside = np.flatnonzero(places.index[0] == OFF_GRID)
        if len(places.index) > 1 or read is None or len(outside) != len(read) or not read.any():
            raise InputError(
                f"query must be 'mean' or a pixel, got 'class': {attention.name!r} has no "
                "class token that the head reads"
            )
        return key_map(weights[0, :, int(outside[np.argmax(read)])], geometry, 0)
    window, token = _query_near(attention, query)
    return key_map(weights[window, :, token], geometry, window)


def _query_near(attention: Attention, pixel: tuple[int, int]) -> tuple[int, int]:
    """Window and number of the query whose place is nearest to a pixel."""
    (height, width), (y, x) = attention.image, pixel
    if not (0 <= y < height and 0 <= x < width):
        raise InputError(
            f"query must be a pixel of the image ({height}x{width}, counted from 0), got "
            f"{y},{x}"
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


def key_map(
    weights: Float[Tensor, "heads keys"], geometry: AttentionGeometry, window: int
) -> Float[np.ndarray, "heads rows columns"]:
    """Weights of keys at their places."""
    rows, columns = geometry.keys.grid
    index = geometry.keys.index[window]
    placed = index != OFF_GRID
    map_ = np.zeros((len(weights), rows * columns))
    map_[:, index[placed]] = weights.detach().cpu().double().numpy()[:, placed]
    return map_.reshape(-1, rows, columns)


def provenance_of(anatomy: Anatomy, run: Run) -> Provenance:
    """Where a map of one image comes from."""
    return run.measured(images=1, batch_size=1, image_shape=image_shape(anatomy))
