"""TokenPositions: for every number of a feature map, the place on the image's grid it speaks of.

A shadow tensor of the feature map's shape holds the place: 0 for none (padding, class tokens),
1 + row * width + column otherwise. It follows the feature map through the model: what only
moves numbers (`reshape`, `permute`, `cat`, window shifts) is done to the shadow too, a
convolution starts a new grid, and what works on each position leaves it as it is. So token
order, prefix tokens, the axis of the channels, windows and patch merging are all read off the
shadow, and none is guessed from sizes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.trace.layout import Layout


@dataclass(frozen=True)
class TokenPositions:
    """The shadow of one tensor."""

    shadow: Float[
        Tensor, "*shape"
    ]  # of the tensor's shape; float, since every operation takes it
    grid: tuple[int, int]  # (height, width) that the places count on

    @cached_property
    def some(self) -> bool:
        """Whether any number has a place."""
        distinct = self.shadow
        for axis in range(distinct.ndim):
            if distinct.stride(axis) == 0:  # expanded: all the same
                distinct = distinct.narrow(axis, 0, 1)
        return bool(distinct.any())


def raster(shape: torch.Size) -> TokenPositions:
    """TokenPositions of a (B, C, H, W) feature map, row by row; takes no memory but the grid's."""
    height, width = shape[-2:]
    places = torch.arange(1, height * width + 1, dtype=torch.float32).view(height, width)
    return TokenPositions(places.expand(shape), (height, width))


def moved(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    known: Callable[[Tensor], TokenPositions | None],
) -> list[TokenPositions | None] | None:
    """TokenPositions of what a layout operation gives: the operation done to the shadows.

    None where an operand's positions are unknown, or the operands stand on different grids.
    """
    grids = set()

    def shadow(value: Any) -> Any:  # noqa: ANN401 (any nesting of arguments)
        if isinstance(value, Tensor):
            if not value.is_floating_point():
                return value.cpu()  # an index; shadows never leave the CPU
            positions = known(value)
            if positions is None:
                return torch.zeros(value.shape)
            if positions.some:  # class tokens of a coarser stage have no place on any grid
                grids.add(positions.grid)
            return positions.shadow
        if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
            return type(value)(shadow(v) for v in value)
        return value

    shadows = shadow(list(args)), {k: shadow(v) for k, v in kwargs.items()}
    if len(grids) != 1:
        return None
    out = function(*shadows[0], **shadows[1])
    grid = grids.pop()
    return [TokenPositions(s, grid) for s in (out if isinstance(out, tuple | list) else [out])]


def constant_along(shadow: Tensor, axis: int) -> bool:
    """Whether the positions are the same all along an axis."""
    if shadow.stride(axis) == 0 or shadow.shape[axis] == 1:
        return True
    return bool((shadow == shadow.narrow(axis, 0, 1)).all())


def through_linear(
    positions: TokenPositions, axis: int, shape: torch.Size
) -> TokenPositions | None:
    """TokenPositions after a linear map along `axis`, or None where it mixes positions.

    Where the axis holds the positions of one patch (patch merging, an unfolded image), each
    patch becomes one place of a coarser grid.
    """
    if not constant_along(positions.shadow, axis):
        if _has_channels(positions.shadow, axis):  # beside the axis, which so holds positions
            return None
        coarser = _merged(positions, axis)
        if coarser is None:
            return None
        positions = coarser
    return TokenPositions(positions.shadow.narrow(axis, 0, 1).expand(shape), positions.grid)


def _has_channels(shadow: Tensor, axis: int) -> bool:
    """Whether an axis other than `axis` and the batch's holds the channels of one position."""
    others = set(range(1, shadow.ndim)) - {axis % shadow.ndim}
    return any(shadow.shape[other] > 1 and constant_along(shadow, other) for other in others)


def _merged(positions: TokenPositions, axis: int) -> TokenPositions | None:
    """Patches along `axis` as places of a coarser grid; None where the patches overlap."""
    patches = positions.shadow.movedim(axis, -1)
    for other in range(1, patches.ndim - 1):  # the axes of channels, heads
        if constant_along(patches, other):
            patches = patches.narrow(other, 0, 1)
    first = torch.where(patches > 0, patches, torch.inf).amin(-1, keepdim=True)
    first = torch.where(first.isfinite(), first, 0.0)
    coarse = _ranked(first, positions.grid)
    if coarse is None:
        return None
    shape = [*positions.shadow.movedim(axis, -1).shape[:-1], 1]
    return TokenPositions(coarse.shadow.expand(shape).movedim(-1, axis), coarse.grid)


def _ranked(places: Tensor, grid: tuple[int, int]) -> TokenPositions | None:
    """TokenGrid of some rows and columns of a grid, counted anew; None if others are among them.

    Args:
        places: (B, ...); within an image each place once, and 0 for none.
        grid: that they count on.
    """
    placed = places[0][places[0] > 0] - 1
    if len(placed) == 0 or len(placed) != len(placed.unique()):
        return None
    rows, columns = placed.div(grid[1], rounding_mode="floor"), placed % grid[1]
    row, column = (x.unique(return_inverse=True) for x in (rows, columns))
    coarse = len(row[0]), len(column[0])
    if coarse[0] * coarse[1] != len(placed):
        return None
    rank = torch.zeros(grid[0] * grid[1] + 1)
    rank[placed.long() + 1] = (row[1] * coarse[1] + column[1] + 1).float()
    return TokenPositions(rank[places.long()], coarse)


def through_reduction(
    positions: TokenPositions, axis: int, shape: torch.Size
) -> TokenPositions | None:
    """TokenPositions after a mean, sum or maximum along `axis`; None where all positions meet."""
    if not constant_along(positions.shadow, axis):
        coarser = _merged(positions, axis)
        if coarser is None or coarser.grid == (1, 1):
            return None
        positions = coarser
    kept = positions.shadow.narrow(axis, 0, 1)
    return (
        TokenPositions(kept.reshape(shape), positions.grid)
        if kept.numel() == shape.numel()
        else None
    )


def through_product(
    left: TokenPositions | None, right: TokenPositions | None, shape: torch.Size
) -> TokenPositions | None:
    """TokenPositions of a matrix product of two feature maps: the rows' or else the columns'.

    The scores Q K^T have the queries' places in their rows, and so has what attention gives.
    """
    if left is not None and left.some and constant_along(left.shadow, -1):
        return TokenPositions(left.shadow[..., :1].expand(shape), left.grid)
    if right is not None and right.some and constant_along(right.shadow, -2):
        return TokenPositions(right.shadow[..., :1, :].expand(shape), right.grid)
    return None


def layout_of(positions: TokenPositions | None, batch_size: int) -> Layout | None:
    """How a tensor with these positions lies on the grid; None if it does not, or not whole."""
    if positions is None:
        return None
    shadow, grid = positions.shadow, positions.grid
    tokens_first = shadow.ndim == 3 and shadow.shape[0] != batch_size == shadow.shape[1]
    if tokens_first and constant_along(shadow, 1):
        layout = layout_of(TokenPositions(shadow.transpose(0, 1), grid), batch_size)
        return layout and replace(layout, axes="n b c")
    if shadow.ndim not in (3, 4) or shadow.shape[0] != batch_size:
        return None
    if shadow.ndim == 4 and constant_along(shadow, 1) and shadow.shape[2:] == grid:
        return Layout("b c h w", grid) if _in_raster_order(shadow[0, 0]) else None
    if not constant_along(shadow, -1):
        return None
    ranked = _ranked(shadow[..., 0], grid)  # where every second token was dropped (LeViT)
    if ranked is None:
        return None
    places, (height, width) = ranked.shadow[0], ranked.grid
    if places.shape == (height, width) and _in_raster_order(places):
        return Layout("b h w c", (height, width))
    places = places.flatten()
    order = places.argsort(stable=True)[int((places == 0).sum()) :]
    first, last = int(order.min()), int(order.max())
    in_order = torch.equal(order, torch.arange(first, last + 1))
    return Layout(
        "b n c",
        (height, width),
        num_prefix_tokens=first,
        num_suffix_tokens=len(places) - 1 - last,
        order=None if in_order else tuple(order.tolist()),
    )


def _in_raster_order(places: Tensor) -> bool:
    flat = places.flatten()
    return torch.equal(flat, torch.arange(1.0, len(flat) + 1))
