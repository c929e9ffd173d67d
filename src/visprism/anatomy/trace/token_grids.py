"""Token grids: positions of the tokens of an attention on the image's grid."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from visprism.anatomy.trace.operations import Operation
from visprism.anatomy.trace.token_positions import (
    PRODUCT,
    TokenPositions,
    constant_along,
    propagate_einsum,
)

PositionsOf = Callable[[Tensor], TokenPositions | None]
Axis = Literal["images", "windows", "heads"]

_KINDS: tuple[Axis, ...] = ("images", "windows", "heads")

OFF_GRID = -1  # the place of a token that is on no grid: class token, register, padding


@dataclass(frozen=True, eq=False)
class TokenGrid:
    """The places of the queries, or of the keys, of one attention."""

    grid: tuple[int, int]  # (height, width)
    # Row by row of the grid from 0, or OFF_GRID. Without windows all tokens are one window.
    index: Int[np.ndarray, "windows tokens"]


@dataclass(frozen=True, eq=False)
class AttentionGeometry:
    """Positions of queries and keys of one attention, and the axes of its tensors."""

    queries: TokenGrid
    keys: TokenGrid
    # What the leading axes of the scores (..., queries, keys) are, and how long; an axis that
    # holds images and something else counts as two.
    axes: tuple[tuple[Axis, int], ...]

    @property
    def heads(self) -> int:
        """Number of heads."""
        return prod(size for axis, size in self.axes if axis == "heads")

    @property
    def transposed(self) -> "AttentionGeometry":
        """The same with keys for queries, for scores that have keys in their rows."""
        return replace(self, queries=self.keys, keys=self.queries)

    def weights(
        self, tensor: Float[Tensor, "... queries keys"]
    ) -> Float[Tensor, "b windows heads queries keys"]:
        """The weights of an attention, from the model's layout."""
        windows = len(self.queries.index)
        images = tensor.shape[:-2].numel() // (windows * self.heads)
        x = tensor.reshape(*self._leading(images), *tensor.shape[-2:])
        shape = images, windows, self.heads, *tensor.shape[-2:]
        return x.permute(*self._order(), -2, -1).reshape(shape)

    def tensor(
        self, weights: Float[Tensor, "b windows heads queries keys"], shape: torch.Size
    ) -> Float[Tensor, "... queries keys"]:
        """Weights as the model holds them, the other way round."""
        leading, order = self._leading(len(weights)), self._order()
        x = weights.reshape(*(leading[i] for i in order), *weights.shape[-2:])
        back = [order.index(i) for i in range(len(order))]
        return x.permute(*back, -2, -1).reshape(shape)

    def _leading(self, images: int) -> list[int]:
        return [images if axis == "images" else size for axis, size in self.axes]

    def _order(self) -> list[int]:
        """The leading axes: images, then windows, then heads."""
        kinds = [axis for axis, _ in self.axes]
        return [i for kind in _KINDS for i, axis_kind in enumerate(kinds) if axis_kind == kind]


def attention_geometry(
    call: Operation, positions_of: PositionsOf, batch_size: int
) -> AttentionGeometry | None:
    """The geometry of a call that is an attention or returns its scores.

    None where it is neither, where the places are not known, or where channels weigh channels.
    """
    made = call.made[0]
    if call.name == "scaled_dot_product_attention":
        queries, keys = (positions_of(t) for t in call.operands[:2])
        columns = _of_heads(_tokens(keys), made.shape[:-2])
        return _assemble(made, _tokens(queries), columns, queries, keys, batch_size)
    if call.name == "multi_head_attention_forward":
        queries, keys = (positions_of(t) for t in call.operands[:2])
        heads = call.kwargs.get("num_heads", call.args[4] if len(call.args) > 4 else None)
        rows, columns = (_tokens(p) for p in (queries, keys))
        if not heads or rows is None or columns is None or rows.ndim != 2:
            return None
        # Torch's own takes tokens first, and gives weights images first.
        rows, columns = (t.T[:, None].expand(-1, heads, -1) for t in (rows, columns))
        images_first = made.transpose(0, 1)[:, None].expand(-1, heads, -1, -1)
        return _assemble(images_first, rows, columns, queries, keys, batch_size)
    if call.role != "bilinear" or made.ndim < 3:
        return None
    equation = call.args[0] if call.name == "einsum" else PRODUCT
    if not isinstance(equation, str) or (call.name == "einsum" and len(call.operands) != 2):
        return None
    left, right = (positions_of(t) for t in call.operands[-2:])
    queries = propagate_einsum(equation, [left, None], made.shape)
    keys = propagate_einsum(equation, [None, right], made.shape)
    columns = None if keys is None else TokenPositions(keys.index_map.mT, keys.grid)
    return _assemble(made, _tokens(queries), _tokens(columns), queries, keys, batch_size)


def _tokens(positions: TokenPositions | None) -> Float[Tensor, "... n"] | None:
    """One place for each token, where the last axis holds its channels."""
    if (
        positions is None
        or not positions.any_placed
        or not constant_along(positions.index_map, -1)
    ):
        return None
    return positions.index_map[..., 0]


def _of_heads(
    tokens: Float[Tensor, "... n"] | None, leading: torch.Size
) -> Float[Tensor, "... n"] | None:
    """Places of keys for every head of queries, where several heads share one of keys."""
    if tokens is None or tokens.shape[:-1] == leading or tokens.ndim < 3:
        return tokens
    return tokens.repeat_interleave(leading[-1] // tokens.shape[-2], dim=-2)


def _assemble(
    made: Float[Tensor, "... a b"],
    rows: Float[Tensor, "... n"] | None,
    columns: Float[Tensor, "... m"] | None,
    queries: TokenPositions | None,
    keys: TokenPositions | None,
    batch_size: int,
) -> AttentionGeometry | None:
    """The geometry, after finding which of the leading axes holds the images.

    The images that were traced are all the same, so what the call made is the same along
    their axis, and along no other: heads differ, and so do windows.
    """
    if rows is None or columns is None or queries is None or keys is None:
        return None
    if not rows.shape[:-1] == columns.shape[:-1] == made.shape[:-2]:
        return None
    for split in _splits(made.shape[:-2], batch_size):
        one, other, values = (
            t.reshape(*(size for _, size in split), *t.shape[len(made.shape) - 2 :])
            for t in (rows, columns, made)
        )
        at = [kind for kind, _ in split].index("images")
        if all(_same_along(t, at) for t in (one, other, values)):
            axes: tuple[tuple[Axis, int], ...] = tuple(
                (kind if kind == "images" else _axis(one, other, i), size)
                for i, (kind, size) in enumerate(split)
            )
            index = [_windows(t, axes) for t in (one, other)]
            return AttentionGeometry(
                TokenGrid(queries.grid, index[0]), TokenGrid(keys.grid, index[1]), axes
            )
    return None


def _splits(leading: torch.Size, batch_size: int) -> Iterator[list[tuple[Axis, int]]]:
    """Every assignment of the images to one of the leading axes, by itself or with others."""
    axes: list[tuple[Axis, int]] = [("heads", size) for size in leading]
    images: tuple[Axis, int] = ("images", batch_size)
    for i, size in enumerate(leading):
        if size % batch_size == 0:
            others: tuple[Axis, int] = ("heads", size // batch_size)
            for pair in ((images, others), (others, images)):
                yield [*axes[:i], *pair, *axes[i + 1 :]]


def _same_along(x: Tensor, axis: int) -> bool:
    """Whether all slices are equal, up to rounding within a batch."""
    first = x.narrow(axis, 0, 1)
    # Not amax, which reduces nothing on XLA where no axis is named (torch_xla 2.9).
    scale = first.abs().max().clamp(min=1e-12)
    return bool(((x - first).abs() <= 1e-4 * scale).all())


def _axis(one: Tensor, other: Tensor, axis: int) -> Axis:
    return "heads" if constant_along(one, axis) and constant_along(other, axis) else "windows"


def _windows(
    tokens: Float[Tensor, "... n"], axes: tuple[tuple[Axis, int], ...]
) -> Int[np.ndarray, "windows n"]:
    """The places by window; all images and heads have the same."""
    for i, (axis, _) in enumerate(axes):
        if axis != "windows":
            tokens = tokens.narrow(i, 0, 1)
    return tokens.reshape(-1, tokens.shape[-1]).round().to(torch.int64).numpy() - 1
