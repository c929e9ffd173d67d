"""Attention maps and rollouts of one image: the weights of one query, by attention and head.

A rollout follows attention through all blocks: R = product over blocks of (I + A) / 2, with A
the weights averaged over heads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from torch import Tensor

from visprism import kit
from visprism.analyses.pictures import image_pictures, pictures_section
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.run.attention_weights import attend
from visprism.anatomy.trace import forward, token_grids
from visprism.core.provenance import Provenance
from visprism.drawing.color_bars import side_by_side
from visprism.kit.model_on_images import inputs_of
from visprism.passes import tokens
from visprism.passes.batches import check_evaluation_mode, images_of
from visprism.passes.blocks import spread
from visprism.table.result import column as quantity

# A pixel (row, column) of the image; the class token; or all queries on the grid, averaged.
Query = tuple[int, int] | Literal["class", "mean"]
_DRAWN = 7  # pictures side by side


@kit.result("attention-maps", "Attention maps", table=False)
class QueryWeights(kit.Result):
    """Weights of one query; one row for each attention, head and place of its keys' grid.

    Each picture is an attention layer: the weights of the query on the token grid, mean
    over heads, from 0 to the largest of the picture. The mean over queries shows how much
    each place is attended to.
    """

    block: kit.Texts = quantity(
        "Block", "", "name of the attention's block; '#2' for the second in one block"
    )
    head: np.ndarray = quantity("Head", "", "number of the head, from 1")
    row: np.ndarray = quantity("Row", "", "of the keys' grid, from 0")
    column: np.ndarray = quantity("Column", "", "of the keys' grid, from 0")
    weight: np.ndarray = quantity(
        "Attention weight",
        "",
        "the weights of all keys add up to 1; 0 outside the query's window",
    )
    query: str = kit.scalar("Query", "", "'class', 'mean', or 'row,column' in pixels")
    no_rollout: str = kit.scalar(
        "No rollout", "", "why a rollout could not be made", default=""
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Why a rollout could not be made."""
        if self.no_rollout:
            yield f"no rollout: {self.no_rollout}"


@kit.result("rollout", "Attention rollout", table=False)
class Rollout(kit.Result):
    """Attention followed through all blocks; one row for each place of the grid.

    The product of the attention weights of all layers shows how much each position
    contributes to the tokens that the head reads. It is undefined for models whose number
    of tokens changes between layers, and for backbones without logits.
    """

    row: np.ndarray = quantity("Row", "", "of the token grid, from 0")
    column: np.ndarray = quantity("Column", "", "of the token grid, from 0")
    weight: np.ndarray = quantity("Rollout weight", "", "how much the place reaches the output")
    method: str = kit.scalar("Method", "", "'attention', or 'gradient'")
    readout: str = kit.scalar(
        "Readout",
        "",
        "tokens that the head reads, over which the rollout is averaged",
        default="",
    )


@kit.analysis
class AttentionMaps(kit.Analysis):
    """Attention weights of one query of the first image, by attention and head."""

    name = "attention-maps"
    images = kit.Sizes(quick=1, standard=1, full=1)
    rank = 1
    group = "attention"
    needs = kit.Needs.ATTENTION | kit.Needs.GRADIENTS
    default = False
    source = "Abnar & Zuidema (2020); Chefer et al. (2021)"
    gives = (
        QueryWeights,
        pictures_section("Image of the attention maps"),
        Rollout,
    )

    query: Literal["mean", "class"] = kit.option(
        "mean",
        "query of the maps: mean over all queries, or the class token that the head reads",
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Measure one model; see `Analysis.measure`."""
        image = inputs_of(subject.batches(1)[0])
        maps = attention_maps(subject.anatomy, image, query=self.query, run=run)
        pictures = image_pictures(subject, 1, maps.provenance)
        if not subject.num_classes:  # a backbone, without the class that a rollout follows
            return maps, *pictures
        made, reason = rollouts(subject.anatomy, image, run=run)
        return replace(maps, no_rollout=reason), *pictures, *made

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Two forward passes for the maps, four and a backward pass for two rollouts."""
        return kit.Cost(per_image=0.0, fixed=8.0)


def attention_maps(
    anatomy: kit.Anatomy,
    images: forward.Images,
    *,
    query: Query = "mean",
    blocks: Iterable[str] | None = None,
    run: kit.Run = kit.DEFAULT_RUN,
) -> QueryWeights:
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
    several = maps_of_queries(anatomy, images, [query], blocks=blocks, run=run)
    maps = {name: of_query[0] for name, of_query in several.items()}
    places = [np.indices(map_.shape).reshape(3, -1) for map_ in maps.values()]
    head, row, column = np.concatenate(places, axis=1)
    return QueryWeights(
        block=np.repeat(list(maps), [map_.size for map_ in maps.values()]),
        head=head + 1,
        row=row,
        column=column,
        weight=np.concatenate([map_.ravel() for map_ in maps.values()]),
        query=query if isinstance(query, str) else ",".join(map(str, query)),
        provenance=provenance_of(anatomy, run),
    )


def maps_of_queries(
    anatomy: kit.Anatomy,
    images: forward.Images,
    queries: Sequence[Query],
    *,
    blocks: Iterable[str] | None = None,
    run: kit.Run = kit.DEFAULT_RUN,
) -> dict[str, Float[np.ndarray, "queries heads rows columns"]]:
    """The weights of several queries of one image, by attention; see `attention_maps`.

    Costs one forward pass; with the query "class" another one, and a backward pass of the head.
    """
    images = single_image(anatomy, images, run)
    chosen = _chosen(anatomy, blocks)
    with run.compute.borrow(anatomy.model):
        read = class_tokens(anatomy, images) if "class" in queries and chosen else None

        def of_queries(
            w: kit.Weights,
        ) -> Float[np.ndarray, "queries heads rows columns"]:
            values = w.values[0].float()
            return np.stack([_of_query(w.attention, values, query, read) for query in queries])

        with (
            torch.no_grad(),
            run.compute.autocast(),
            attend(anatomy, of_queries, only=chosen) as maps,
        ):
            forward.forward(anatomy.model, images)
    return dict(maps)


def _chosen(anatomy: kit.Anatomy, blocks: Iterable[str] | None) -> tuple[kit.Attention, ...]:
    available = attentions(anatomy)
    if blocks is None:
        return available
    wanted = list(blocks)
    names = [attention.name for attention in available]
    for name in wanted:
        if name not in names:
            raise kit.InputError(f"blocks must be of {', '.join(names)}, got {name!r}")
    return tuple(attention for attention in available if attention.name in wanted)


def class_tokens(anatomy: kit.Anatomy, images: forward.Images) -> Bool[np.ndarray, "others"]:
    """Whether the head reads each off-grid token of the last attention, such as a class token.

    Costs one forward pass and a backward pass of the head, if there are such tokens.
    """
    last = attentions(anatomy)[-1]
    outside = last.geometry.keys.index[0] == token_grids.OFF_GRID
    if len(last.geometry.keys.index) > 1 or not outside.any():
        return np.zeros(0, dtype=bool)
    return tokens.tokens_read(anatomy, last, images)[outside]


def single_image(anatomy: kit.Anatomy, images: forward.Images, run: kit.Run) -> forward.Images:
    """The one image of a batch, on the device."""
    check_evaluation_mode(anatomy.model)
    if forward.batch_size(images) != 1:
        raise kit.InputError(
            f"images must be a batch of one image, got {forward.batch_size(images)}. "
            "Pass images[:1]."
        )
    return images_of(images, anatomy, run.on(anatomy.model).compute)


def _of_query(
    attention: kit.Attention,
    weights: Float[Tensor, "windows heads queries keys"],
    query: Query,
    read: Bool[np.ndarray, "others"] | None,
) -> Float[np.ndarray, "heads rows columns"]:
    """The weights of one query on the grid of the keys."""
    geometry, places = attention.geometry, attention.geometry.queries
    if query == "mean":
        on_grid = places.index != token_grids.OFF_GRID
        per_window = torch.from_numpy(on_grid / max(1, on_grid.sum())).to(weights)
        means = torch.einsum("whqk,wq->whk", weights, per_window)
        return np.sum([key_map(mean, geometry, i) for i, mean in enumerate(means)], axis=0)
    if query == "class":
        outside = np.flatnonzero(places.index[0] == token_grids.OFF_GRID)
        if len(places.index) > 1 or read is None or len(outside) != len(read) or not read.any():
            raise kit.InputError(
                f"query must be 'mean' or a pixel, got 'class': {attention.name!r} has no "
                "class token that the head reads"
            )
        return key_map(weights[0, :, int(outside[np.argmax(read)])], geometry, 0)
    window, token = _query_near(attention, query)
    return key_map(weights[window, :, token], geometry, window)


def _query_near(attention: kit.Attention, pixel: tuple[int, int]) -> tuple[int, int]:
    """Window and number of the query whose place is nearest to a pixel."""
    (height, width), (y, x) = attention.image, pixel
    if not (0 <= y < height and 0 <= x < width):
        raise kit.InputError(
            f"query must be a pixel of the image ({height}x{width}, counted from 0), got "
            f"{y},{x}"
        )
    places = attention.geometry.queries
    rows, columns = places.grid
    row, column = places.index // columns, places.index % columns
    away = np.hypot(
        (row + 0.5) * height / rows - y - 0.5, (column + 0.5) * width / columns - x - 0.5
    )
    away = np.where(places.index == token_grids.OFF_GRID, np.inf, away)
    window, token = np.unravel_index(away.argmin(), away.shape)
    return int(window), int(token)


def key_map(
    weights: Float[Tensor, "heads keys"], geometry: token_grids.AttentionGeometry, window: int
) -> Float[np.ndarray, "heads rows columns"]:
    """Weights of keys at their places."""
    rows, columns = geometry.keys.grid
    index = geometry.keys.index[window]
    placed = index != token_grids.OFF_GRID
    map_ = np.zeros((len(weights), rows * columns))
    map_[:, index[placed]] = weights.detach().cpu().double().numpy()[:, placed]
    return map_.reshape(-1, rows, columns)


def provenance_of(anatomy: kit.Anatomy, run: kit.Run) -> Provenance:
    """Where a map of one image comes from."""
    return run.measured(images=1, batch_size=1, image_shape=anatomy.image_shape)


def rollout(
    anatomy: kit.Anatomy,
    images: forward.Images,
    *,
    gradient: bool = False,
    target: int | None = None,
    run: kit.Run = kit.DEFAULT_RUN,
) -> Rollout:
    """Attention rollout: contribution of each position to the output through all blocks.

    R = product over blocks of (I + A) / 2, A the weights averaged over heads; with `gradient`
    R <- R + A' R with A' the mean over heads of (dy/dA * A), negative values set to 0, y the
    target's logit. The rollout is the mean of the rows of R over the tokens that the head
    reads: the class token, or the patches of a model that pools. Which ones those are is
    decided by the gradient of a logit. Costs two forward passes and a backward pass of the
    head, with `gradient` one backward pass of the model.

    Args:
        anatomy: of a model in evaluation mode whose tokens are the same in every attention.
        images: a batch of one image.
        gradient: follow what counts for one class.
        target: that class; the one that the model predicts by default.
        run: device and provenance; the precision must be "fp32".

    Sources: Abnar and Zuidema (2020), Quantifying attention flow in transformers; with the
    gradient Chefer et al. (2021), Generic attention-model explainability, eq. 5 and 6.
    """
    run.require_full_precision("rollout")
    images = single_image(anatomy, images, run)
    chosen = attentions(anatomy)
    for attention in chosen:
        queries, keys = attention.geometry.queries.index, attention.geometry.keys.index
        same = np.array_equal(queries, keys)
        if len(keys) > 1 or not (same and np.array_equal(keys, chosen[0].geometry.keys.index)):
            raise kit.InputError(
                "all attention layers must have the same tokens for a rollout, but the tokens "
                f"of {attention.name!r} and {chosen[0].name!r} differ (windows, pooled or "
                "merged tokens). Use attention_maps for single layers."
            )
    with run.compute.borrow(anatomy.model):
        with torch.set_grad_enabled(gradient), attend(
            anatomy, lambda w: w.values, only=chosen, differentiable=gradient
        ) as weights_by_name:  # fmt: skip
            logits = forward.forward(anatomy.model, images)
        weights = list(weights_by_name.values())
        if gradient:
            weights = _relevant(logits, weights, target)
        eye = torch.eye(weights[0].shape[-1]).to(weights[0])
        reached = eye
        for weight in weights:
            a = weight[0, 0].mean(0)
            reached = reached + a @ reached if gradient else (eye + a) / 2 @ reached
        read = tokens.tokens_read(anatomy, chosen[-1], images)
    geometry = chosen[0].geometry
    row = reached[torch.from_numpy(read)].mean(0)
    map_ = key_map(row[None], geometry, 0)[0]
    rows, columns = np.indices(map_.shape).reshape(2, -1)
    return Rollout(
        row=rows,
        column=columns,
        weight=map_.ravel(),
        method="gradient" if gradient else "attention",
        readout=tokens.described_readout(read, geometry.keys.index[0] == token_grids.OFF_GRID),
        provenance=provenance_of(anatomy, run),
    )


def rollouts(
    anatomy: kit.Anatomy, images: forward.Images, *, run: kit.Run = kit.DEFAULT_RUN
) -> tuple[list[Rollout], str]:
    """The rollouts of one image by attention and by gradient, and why one is missing."""
    made, reason = [], ""
    for gradient in (False, True):
        try:
            made.append(rollout(anatomy, images, gradient=gradient, run=run))
        except kit.InputError as error:
            reason = str(error)
    return made, reason


def _relevant(logits: Tensor, weights: Sequence[Tensor], target: int | None) -> list[Tensor]:
    """The weights times the gradient of a class with respect to them, clipped at 0."""
    classes = logits.shape[-1]
    if target is None:
        target = int(logits[0].argmax())
    elif not 0 <= target < classes:
        raise kit.InputError(f"target must be between 0 and {classes - 1}, got {target}")
    gradients: Sequence[Tensor | None] = [None] * len(weights)
    if logits.requires_grad and all(weight.requires_grad for weight in weights):
        gradients = torch.autograd.grad(logits[0, target], weights, allow_unused=True)
    pairs = zip(weights, gradients, strict=True)
    relevant = [(w * g).clamp(min=0).detach() for w, g in pairs if g is not None]
    if len(relevant) < len(weights):
        raise kit.InputError(
            "the model must have a gradient for all attention weights, and is under no_grad "
            "in a part. Use gradient=False."
        )
    return relevant


@kit.figure(width=6.1, height=1.15, across=1, share=False)
def _(result: QueryWeights, ax: Axes) -> Axes:
    """Weights of the query, mean over heads, of up to seven attentions over the depth."""
    pictures = {}
    for name in spread(list(dict.fromkeys(result.block.tolist())), _DRAWN):
        rows = result.select(result.block == name)
        by_head = rows.weight.reshape(rows.head.max(), rows.row.max() + 1, -1)
        pictures[name] = by_head.mean(0)
    ax.text(-0.03, 0.5, f"query: {result.query}", rotation=90, ha="right", va="center",
            fontsize=5.5)  # fmt: skip
    return _pictures(ax, pictures, vmin=0.0)


@kit.figure(width=2.2, height=1.9, share=False)
def _(result: Rollout, ax: Axes) -> Axes:
    """The rollout on the token grid, from its smallest to its largest value."""
    grid = result.weight.reshape(result.row.max() + 1, -1)
    return _pictures(ax, {f"rollout ({result.method})": grid})


def _pictures(ax: Axes, pictures: dict[str, np.ndarray], vmin: float | None = None) -> Axes:
    """Pictures side by side, with their names and the ends of their scales."""

    def describe(name: str, image: AxesImage) -> str:
        low, high = image.get_clim()
        return f"{name}\n{low:.2g} to {high:.2g}"

    side_by_side(ax, pictures, describe, fontsize=5.5, cmap="magma", vmin=vmin)
    ax.set_ylim(1.15, 0)
    return ax
