"""Places: where on the image's grid the tokens of an attention lie."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from visprism.anatomy import vocabulary
from visprism.anatomy.einsum import through_einsum
from visprism.anatomy.operations import Call
from visprism.anatomy.positions import Positions, constant_along, through_product

Known = Callable[[Tensor], Positions | None]
Axis = Literal["windows", "heads"]

NOWHERE = -1  # the place of a token that is on no grid: class token, register, padding


@dataclass(frozen=True, eq=False)
class Places:
    """The places of the queries, or of the keys, of one attention."""

    grid: tuple[int, int]  # (height, width)
    # Row by row of the grid from 0, or NOWHERE. Without windows all tokens are one window.
    index: Int[np.ndarray, "windows tokens"]


@dataclass(frozen=True, eq=False)
class Attended:
    """Which queries weigh which keys in one attention, and how its tensors hold them."""

    queries: Places
    keys: Places
    # What the leading axes of the scores (..., queries, keys) are, without the images', and
    # how long; the images' axis is the outer part of the first one, or the inner.
    axes: tuple[tuple[Axis, int], ...]
    images_outside: bool

    @property
    def heads(self) -> int:
        """Number of heads."""
        return prod(size for axis, size in self.axes if axis == "heads")

    def weights(
        self, tensor: Float[Tensor, "... queries keys"], images: int
    ) -> Float[Tensor, "b windows heads queries keys"]:
        """The weights of an attention, however the model holds them."""
        x = tensor.reshape(*self._leading(images), *tensor.shape[-2:])
        shape = images, len(self.queries.index), self.heads, *tensor.shape[-2:]
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
        """Lengths of the leading axes, with one of their own for the images."""
        sizes = [size for _, size in self.axes]
        return [images, *sizes] if self.images_outside else [sizes[0], images, *sizes[1:]]

    def _order(self) -> list[int]:
        """The leading axes: images, then windows, then heads."""
        kinds = [axis for axis, _ in self.axes]
        images = 0 if self.images_outside else 1
        at = [1 - images, *range(2, len(kinds) + 1)]
        chosen = [
            at[i] for kind in ("windows", "heads") for i, k in enumerate(kinds) if k == kind
        ]
        return [images, *chosen]


def attended_by(call: Call, known: Known, batch_size: int) -> Attended | None:
    """Who weighs whom, where a call is a whole attention or gives scores.

    None where it is neither, where the places are not known, or where channels weigh channels.
    """
    if call.name == "scaled_dot_product_attention":
        queries, keys = (known(t) for t in call.operands[:2])
        return _attended(_tokens(queries), _tokens(keys), queries, keys, batch_size)
    if call.name == "multi_head_attention_forward":
        queries, keys = (known(t) for t in call.operands[:2])
        heads = call.kwargs.get("num_heads", call.args[4] if len(call.args) > 4 else None)
        rows, columns = (_of_heads(_tokens(p), heads) for p in (queries, keys))
        return _attended(rows, columns, queries, keys, batch_size)
    if call.role != "bilinear" or call.made[0].ndim < 3:
        return None
    left, right = (known(t) for t in call.operands[-2:])
    shape = call.made[0].shape
    if call.name == "einsum":
        equation = call.args[0]
        if not isinstance(equation, str) or len(call.operands) != 2:
            return None
        queries = through_einsum(equation, [left, None], shape)
        keys = through_einsum(equation, [None, right], shape)
    elif call.name in vocabulary.PRODUCTS:
        queries = through_product(left, None, shape)
        keys = through_product(None, right, shape)
    else:
        return None
    columns = None if keys is None else Positions(keys.shadow.mT, keys.grid)
    return _attended(_tokens(queries), _tokens(columns), queries, keys, batch_size)


def _tokens(positions: Positions | None) -> Float[Tensor, "... n"] | None:
    """One place for each token, where the last axis is that of its channels."""
    if positions is None or not positions.some or not constant_along(positions.shadow, -1):
        return None
    return positions.shadow[..., 0]


def _of_heads(
    tokens: Float[Tensor, "n b"] | None, heads: int | None
) -> Float[Tensor, "b heads n"] | None:
    """Places of the tokens that torch's own multi-head attention takes, tokens first."""
    if tokens is None or heads is None or tokens.ndim != 2:
        return None
    return tokens.T[:, None].expand(-1, heads, -1)


def _attended(
    rows: Float[Tensor, "... n"] | None,
    columns: Float[Tensor, "... m"] | None,
    queries: Positions | None,
    keys: Positions | None,
    batch_size: int,
) -> Attended | None:
    if rows is None or columns is None or queries is None or keys is None:
        return None
    if rows.shape[:-1] != columns.shape[:-1] or rows.shape[0] % batch_size:
        return None
    for images_outside in (True, False):
        pair = [
            _one_image(t, batch_size, images_outside=images_outside) for t in (rows, columns)
        ]
        if pair[0] is not None and pair[1] is not None:
            axes = tuple(
                (_axis(pair, axis), size) for axis, size in enumerate(pair[0].shape[:-1])
            )
            one, other = (_windows(t, axes) for t in pair)
            return Attended(
                Places(queries.grid, one), Places(keys.grid, other), axes, images_outside
            )
    return None


def _one_image(
    tokens: Float[Tensor, "... n"], batch_size: int, *, images_outside: bool
) -> Float[Tensor, "... n"] | None:
    """The places of one image, if all have the same."""
    rest = tokens.shape[0] // batch_size
    split = (batch_size, rest) if images_outside else (rest, batch_size)
    by_image = tokens.unflatten(0, split).movedim(0 if images_outside else 1, 0)
    return by_image[0] if torch.equal(by_image, by_image[:1].expand_as(by_image)) else None


def _axis(pair: list[Tensor | None], axis: int) -> Axis:
    same = all(t is not None and constant_along(t, axis) for t in pair)
    return "heads" if same else "windows"


def _windows(tokens: Tensor | None, axes: tuple[tuple[Axis, int], ...]) -> np.ndarray:
    """The places by window; all heads have the same."""
    assert tokens is not None
    for i, (axis, _) in enumerate(axes):
        if axis == "heads":
            tokens = tokens.narrow(i, 0, 1)
    return tokens.reshape(-1, tokens.shape[-1]).round().to(torch.int64).numpy() - 1
