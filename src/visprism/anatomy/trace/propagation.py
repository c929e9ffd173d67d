"""Flow: the positions of what one torch function gives, from those of its operands."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from visprism.anatomy.trace import torch_functions as vocabulary
from visprism.anatomy.trace.einsum import through_einsum
from visprism.anatomy.trace.operations import Call
from visprism.anatomy.trace.token_positions import (
    TokenPositions,
    moved,
    raster,
    through_linear,
    through_product,
    through_reduction,
)

Known = Callable[[Tensor], TokenPositions | None]


def positions_after(call: Call, known: Known, *, chosen: bool) -> list[TokenPositions | None]:
    """TokenPositions of each tensor that a call gives; None where there is no telling.

    Args:
        call: of a torch function.
        known: the positions of a tensor.
        chosen: whether an operand is an index or a mask made from the image, so that what goes
            where differs from image to image.
    """
    if call.name in vocabulary.ORDERINGS or (chosen and call.name in vocabulary.LAYOUTS):
        return [None] * len(call.made)
    if call.name == "__setitem__":
        return [_after_assignment(call, known)]
    if call.name in vocabulary.LAYOUTS:
        return moved(call.function, call.args, call.kwargs, known) or [None] * len(call.made)
    rest: list[TokenPositions | None] = [None] * (len(call.made) - 1)
    return [_after_work(call, known), *rest]


def mixes_positions(call: Call, after: Sequence[TokenPositions | None], known: Known) -> bool:
    """Whether a linear map had places and lost them, though it kept the tensor's axes."""
    if call.role != "linear":
        return False
    axes = call.made[0].ndim
    placed = [t for t in call.operands if (p := known(t)) is not None and p.some]
    return after[0] is None and any(t.ndim == axes > 2 for t in placed)


def _after_assignment(call: Call, known: Known) -> TokenPositions | None:
    """``target[index] = value``."""
    target, index, value = call.args
    before = known(target)
    source = known(value) if isinstance(value, Tensor) else None
    some = before or source
    if some is None:
        return None
    shadow = before.shadow.clone() if before else torch.zeros(target.shape)
    parts = index if isinstance(index, tuple) else (index,)
    at = tuple(part.cpu() if isinstance(part, Tensor) else part for part in parts)
    shadow[at] = 0.0 if source is None else source.shadow
    return TokenPositions(shadow, some.grid)


def _after_work(call: Call, known: Known) -> TokenPositions | None:
    shape = call.made[0].shape
    slides = call.role in {"conv", "pool", "global pool"}
    if slides or call.name in {"conv2d", "interpolate", "fold"}:
        pooled = call.role == "global pool" and shape[2:].numel() == 1
        return raster(shape) if len(shape) == 4 and not pooled else None
    if call.name == "scaled_dot_product_attention":
        return through_product(known(call.operands[0]), None, shape)
    if call.name == "einsum" and isinstance(call.args[0], str):
        return through_einsum(call.args[0], [known(t) for t in call.operands], shape)
    if call.role == "bilinear":
        left, right = call.operands[-2:]
        return through_product(known(left), known(right), shape)
    placed = [(t, p) for t in call.operands if (p := known(t)) is not None]
    if not placed:
        return None
    first, positions = placed[0]
    if call.role == "linear":
        same_axes = first.ndim == len(shape)
        return through_linear(positions, _summed(call, first), shape) if same_axes else None
    if call.name in vocabulary.REDUCTIONS:
        axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
        return through_reduction(positions, axis, shape) if isinstance(axis, int) else None
    for tensor, place in placed:
        if tensor.shape == shape and place.some:
            return place
    try:
        return TokenPositions(positions.shadow.expand(shape), positions.grid)
    except RuntimeError:  # another shape than its operand's: no telling
        return None


def _summed(call: Call, data: Tensor) -> int:
    """The axis of the data that a linear map sums over: the channels', as a rule."""
    if call.name in vocabulary.CONVOLUTIONS:
        return 1
    if call.name in vocabulary.PRODUCTS:
        left = call.operands[-1 if call.name == "__rmatmul__" else -2]
        return -1 if data is left else -2
    return -1
