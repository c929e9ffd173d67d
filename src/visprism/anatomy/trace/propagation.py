"""Propagation of token positions through one torch function."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from visprism.anatomy.trace import operations as vocabulary
from visprism.anatomy.trace.operations import Call
from visprism.anatomy.trace.token_positions import (
    TokenPositions,
    apply_layout_op,
    propagate_einsum,
    propagate_linear,
    propagate_product,
    propagate_reduction,
    propagate_windows,
    raster,
)

PositionsOf = Callable[[Tensor], TokenPositions | None]


def positions_after(
    call: Call, positions_of: PositionsOf, *, chosen: bool
) -> list[TokenPositions | None]:
    """Positions of each tensor that a call returns; None if unknown.

    Unknown too where following them fails: the model itself runs.
    """
    unknown: list[TokenPositions | None] = [None] * len(call.made)
    if call.name in vocabulary.ORDERINGS | vocabulary.MEMORY_VIEWS:
        return unknown
    if chosen and call.name in vocabulary.LAYOUTS:
        return unknown
    try:
        positions = _followed_positions(call, positions_of)
    except Exception:  # whatever a torch function raises for index maps
        return unknown
    return positions if len(positions) == len(unknown) else unknown


def _followed_positions(call: Call, positions_of: PositionsOf) -> list[TokenPositions | None]:
    if call.name == "__setitem__":
        return [_after_assignment(call, positions_of)]
    if call.name in vocabulary.LAYOUTS:
        return apply_layout_op(call.function, call.args, call.kwargs, positions_of) or [
            None
        ] * len(call.made)
    rest: list[TokenPositions | None] = [None] * (len(call.made) - 1)
    return [_after_work(call, positions_of), *rest]


def mixes_positions(
    call: Call, after: Sequence[TokenPositions | None], positions_of: PositionsOf
) -> bool:
    """Whether a linear map had places and lost them, though it kept the tensor's axes."""
    if call.role != "linear":
        return False
    axes = call.made[0].ndim
    placed = [t for t in call.operands if (p := positions_of(t)) is not None and p.any_placed]
    return after[0] is None and any(t.ndim == axes > 2 for t in placed)


def _after_assignment(call: Call, positions_of: PositionsOf) -> TokenPositions | None:
    """``target[index] = value``."""
    target, index, value = call.args
    before = positions_of(target)
    source = positions_of(value) if isinstance(value, Tensor) else None
    positions = before or source
    if positions is None:
        return None
    index_map = before.index_map.clone() if before else torch.zeros(target.shape)
    parts = index if isinstance(index, tuple) else (index,)
    at = tuple(part.cpu() if isinstance(part, Tensor) else part for part in parts)
    index_map[at] = 0.0 if source is None else source.index_map
    return TokenPositions(index_map, positions.grid)


def _after_work(call: Call, positions_of: PositionsOf) -> TokenPositions | None:
    shape = call.made[0].shape
    slides = call.role in {"conv", "pool", "global pool"}
    if slides or call.name in {"conv2d", "interpolate", "fold"}:
        pooled = call.role == "global pool" and shape[2:].numel() == 1
        if len(shape) != 4 or pooled:
            return None
        return propagate_windows(positions_of(call.operands[0]), shape) or raster(shape)
    if call.name == "scaled_dot_product_attention":
        return propagate_product(positions_of(call.operands[0]), None, shape)
    if call.name == "einsum" and isinstance(call.args[0], str):
        return propagate_einsum(call.args[0], [positions_of(t) for t in call.operands], shape)
    if call.role == "bilinear":
        left, right = call.operands[-2:]
        return propagate_product(positions_of(left), positions_of(right), shape)
    placed = [(t, p) for t in call.operands if (p := positions_of(t)) is not None]
    if not placed:
        return None
    first, positions = placed[0]
    if call.role == "linear":
        same_axes = first.ndim == len(shape)
        return propagate_linear(positions, _summed(call, first), shape) if same_axes else None
    if call.name in vocabulary.REDUCTIONS:
        axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
        return propagate_reduction(positions, axis, shape) if isinstance(axis, int) else None
    for tensor, place in placed:
        if tensor.shape == shape and place.any_placed:
            return place
    try:
        return TokenPositions(positions.index_map.expand(shape), positions.grid)
    except RuntimeError:  # another shape than its operand's: unknown
        return None


def _summed(call: Call, data: Tensor) -> int:
    """The axis of the data that a linear map sums over: the channels', as a rule."""
    if call.name in vocabulary.CONVOLUTIONS:
        return 1
    if call.name in vocabulary.PRODUCTS:
        left = call.operands[-1 if call.name == "__rmatmul__" else -2]
        return -1 if data is left else -2
    return -1
