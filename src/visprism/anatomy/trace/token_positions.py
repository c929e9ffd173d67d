"""Token positions: the place on the image's grid that each value of a feature map belongs to.

The index map, a tensor of the feature map's shape, holds the place: 0 for none (padding, class
tokens), 1 + row * width + column otherwise. It follows the feature map through the model.
Operations that only move values (`reshape`, `permute`, `cat`, window shifts) are applied to it
too, a convolution starts a new grid, and operations on single positions leave it unchanged.
Token order, prefix tokens, the channel axis, windows and patch merging are read off the index
map; none is guessed from sizes.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import torch
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from visprism.core.errors import InputError


@dataclass(frozen=True)
class Layout:
    """Positions of height, width, channels and prefix tokens in a block's output."""

    # Axes between b and c of "b n c" are merged; "n b c" is what torch calls batch_first=False.
    axes: Literal["b c h w", "b h w c", "b n c", "n b c"]
    grid: tuple[int, int]  # (height, width)
    num_prefix_tokens: int = 0  # class, distillation and register tokens before the patches
    num_suffix_tokens: int = 0  # the same, after the patches
    order: tuple[int, ...] | None = field(default=None, repr=False)
    # token of each place, row by row, where tokens are not in that order (Hiera, NesT)

    @property
    def channels_axis(self) -> int:
        """Axis of the channels in the block's output."""
        return 1 if self.axes == "b c h w" else -1

    def tokens(self, x: Tensor) -> Shaped[Tensor, "b n c"]:
        """All positions in the order of memory, on the grid or not; a view of `x`."""
        if self.axes == "b c h w":
            return x.flatten(2).mT
        return x.transpose(0, 1) if self.axes == "n b c" else x.flatten(1, -2)

    def to_map(self, x: Tensor) -> Float[Tensor, "b c h w"]:
        """The feature map: tokens back on their grid, prefix tokens dropped.

        A view of `x`, so it costs nothing; a copy only where the tokens are out of order.
        """
        if x.is_complex():
            raise InputError("feature maps must be real, got complex numbers")
        if self.axes == "b c h w":
            return x
        if self.axes == "b h w c":
            return rearrange(x, "b h w c -> b c h w")
        height, width = self.grid
        tokens = self.tokens(x)
        if self.order is not None:
            patches = tokens[:, list(self.order)]
        else:
            last = tokens.shape[1] - self.num_suffix_tokens
            patches = tokens[:, self.num_prefix_tokens : last]
        return rearrange(patches, "b (h w) c -> b c h w", h=height, w=width)

    def off_grid(self, x: Tensor) -> Shaped[Tensor, "b p c"]:
        """The tokens that `to_map` drops, in their order: class, distillation, registers.

        A view of `x` where they stand at one end; empty (p = 0) where all lie on the grid.
        """
        tokens = self.tokens(x)
        number = tokens.shape[1]
        if self.order is not None:
            return tokens[:, sorted(set(range(number)) - set(self.order))]
        if not self.num_suffix_tokens:
            return tokens[:, : self.num_prefix_tokens]
        last = number - self.num_suffix_tokens
        return tokens[:, [*range(self.num_prefix_tokens), *range(last, number)]]


@dataclass(frozen=True)
class TokenPositions:
    """The index map of one tensor."""

    index_map: Float[
        Tensor, "*shape"
    ]  # of the tensor's shape; float, since every operation takes it
    grid: tuple[int, int]  # (height, width) that the places count on

    @cached_property
    def any_placed(self) -> bool:
        """Whether any number has a place."""
        return bool(self._distinct.any())

    @cached_property
    def several(self) -> bool:
        """Whether the numbers of an image have more than one place."""
        distinct = self._distinct[:1]
        return bool((distinct != distinct.flatten()[0]).any())

    @property
    def _distinct(self) -> Tensor:
        """The index map without what is the same all along an axis."""
        distinct = self.index_map
        for axis in range(distinct.ndim):
            if distinct.stride(axis) == 0:  # expanded: all the same
                distinct = distinct.narrow(axis, 0, 1)
        return distinct


def raster(shape: torch.Size) -> TokenPositions:
    """Positions of a (B, C, H, W) feature map, row by row, in the memory of one grid."""
    height, width = shape[-2:]
    places = _numbered(height * width).view(height, width)
    return TokenPositions(places.expand(shape), (height, width))


def unplaced(shape: Sequence[int]) -> Float[Tensor, "*shape"]:
    """An index map without places, whatever torch's default type and device are."""
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def apply_layout_op(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    positions_of: Callable[[Tensor], TokenPositions | None],
) -> list[TokenPositions | None] | None:
    """Positions of the result of a layout operation: the operation applied to the index maps.

    None where an operand's positions are unknown, or the operands stand on different grids.
    """
    grids = set()

    def index_map(value: Any) -> Any:
        if isinstance(value, Tensor):
            if not value.is_floating_point():
                return value.cpu()  # an index; index_maps never leave the CPU
            positions = positions_of(value)
            if positions is None:
                return unplaced(value.shape)
            if positions.any_placed:  # not so class tokens
                grids.add(positions.grid)
            return positions.index_map
        if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
            return type(value)(index_map(v) for v in value)
        return value

    index_maps = index_map(list(args)), {k: index_map(v) for k, v in kwargs.items()}
    if len(grids) != 1:
        return None
    out = function(*index_maps[0], **index_maps[1])
    grid = grids.pop()
    return [TokenPositions(s, grid) for s in (out if isinstance(out, tuple | list) else [out])]


def of_first_channel(positions: TokenPositions) -> TokenPositions:
    """Positions of the first channel if it has the whole grid: others are shifted copies."""
    index_map = positions.index_map
    whole = index_map.ndim == 4 and index_map.shape[2:] == positions.grid
    if whole and _in_raster_order(index_map[0, 0]):
        return TokenPositions(index_map[:, :1].expand(index_map.shape), positions.grid)
    return positions


def constant_along(index_map: Tensor, axis: int) -> bool:
    """Whether the positions are the same all along an axis."""
    if index_map.stride(axis) == 0 or index_map.shape[axis] == 1:
        return True
    return bool((index_map == index_map.narrow(axis, 0, 1)).all())


def propagate_linear(
    positions: TokenPositions, axis: int, shape: torch.Size
) -> TokenPositions | None:
    """Positions after a linear map along `axis`, or None where it mixes positions.

    Where the axis holds the positions of one patch (patch merging, an unfolded image), each
    patch becomes one place of a coarser grid.
    """
    if not constant_along(positions.index_map, axis):
        if _has_channels(positions.index_map, axis):
            return None
        coarser = _merged(positions, axis)
        if coarser is None:
            return None
        positions = coarser
    return TokenPositions(positions.index_map.narrow(axis, 0, 1).expand(shape), positions.grid)


def _has_channels(index_map: Tensor, axis: int) -> bool:
    """Whether an axis other than `axis` and the batch's holds the channels of one position."""
    others = set(range(1, index_map.ndim)) - {axis % index_map.ndim}
    return any(
        index_map.shape[other] > 1 and constant_along(index_map, other) for other in others
    )


def _merged(positions: TokenPositions, axis: int) -> TokenPositions | None:
    """Patches along `axis` as places of a coarser grid; None where the patches overlap."""
    patches = positions.index_map.movedim(axis, -1)
    for other in range(1, patches.ndim - 1):  # the axes of channels, heads
        if constant_along(patches, other):
            patches = patches.narrow(other, 0, 1)
    first = torch.where(patches > 0, patches, torch.inf).amin(-1, keepdim=True)
    first = torch.where(first.isfinite(), first, 0.0)
    coarse = _ranked(first, positions.grid)
    if coarse is None:
        return None
    shape = [*positions.index_map.movedim(axis, -1).shape[:-1], 1]
    return TokenPositions(coarse.index_map.expand(shape).movedim(-1, axis), coarse.grid)


def _ranked(places: Tensor, grid: tuple[int, int]) -> TokenPositions | None:
    """Positions on a subgrid of rows and columns; None if the places are no such subgrid."""
    placed = places[0][places[0] > 0] - 1
    if len(placed) == 0 or len(placed) != len(placed.unique()):
        return None
    rows, columns = placed.div(grid[1], rounding_mode="floor"), placed % grid[1]
    row, column = (x.unique(return_inverse=True) for x in (rows, columns))
    coarse = len(row[0]), len(column[0])
    if coarse[0] * coarse[1] != len(placed):
        return None
    rank = unplaced([grid[0] * grid[1] + 1])
    rank[placed.long() + 1] = (row[1] * coarse[1] + column[1] + 1).float()
    return TokenPositions(rank[places.long()], coarse)


def propagate_reduction(
    positions: TokenPositions, axis: int, shape: torch.Size
) -> TokenPositions | None:
    """Positions after a mean, sum or maximum along `axis`; None where it pools them all."""
    if not constant_along(positions.index_map, axis):
        coarser = _merged(positions, axis)
        if coarser is None or coarser.grid == (1, 1):
            return None
        positions = coarser
    reduced = positions.index_map.narrow(axis, 0, 1)
    return (
        TokenPositions(reduced.reshape(shape), positions.grid)
        if reduced.numel() == shape.numel()
        else None
    )


def propagate_row(positions: TokenPositions, shape: torch.Size) -> TokenPositions | None:
    """Positions after a convolution along a row of tokens (B, C, N), of stride 1.

    What padding makes longer is cropped at its end, as causal convolutions do.
    """
    index_map, more = positions.index_map, shape[-1] - positions.index_map.shape[-1]
    if index_map.ndim != 3 or more < 0 or not constant_along(index_map, 1):
        return None
    row = functional.pad(index_map[:, :1], (0, more))
    return TokenPositions(row.expand(shape), positions.grid)


def propagate_windows(
    positions: TokenPositions | None, shape: torch.Size
) -> TokenPositions | None:
    """Positions after a convolution of windows that stand on the batch axis (TNT).

    None where the operand is no window of a larger grid, or the output has other cells than
    the strides of a window.
    """
    if positions is None or positions.index_map.ndim != 4:
        return None
    places = positions.index_map[:, 0]
    batch, *window = places.shape
    rows, columns = (n // max(1, m) for n, m in zip(window, shape[2:], strict=True))
    windows, rest = divmod(prod(positions.grid), prod(window))
    if windows < 2 or rest or batch % windows or min(rows, columns) < 1:
        return None
    sampled = places[:, ::rows, ::columns]
    coarse = _ranked(sampled.reshape(batch // windows, -1), positions.grid)
    if coarse is None or sampled.shape[1:] != shape[2:]:
        return None
    index_map = coarse.index_map.reshape(sampled.shape)[:, None]
    return TokenPositions(index_map.expand(shape), coarse.grid)


PRODUCT = "...ij,...jk->...ik"  # of matrices


def propagate_einsum(
    equation: str, operands: Sequence[TokenPositions | None], shape: torch.Size
) -> TokenPositions | None:
    """Positions of the first operand that has all its places in the output too.

    So the scores Q K^T, ``b i d, b j d -> b i j``, have the queries' places, and so has what
    the attention ``b i j, b j d -> b i d`` gives.
    """
    inputs, output = _letters(equation)
    output = _spell_dots(output, len(shape))
    for letters, positions in zip(inputs, operands, strict=True):
        if positions is not None and positions.any_placed:
            letters = _spell_dots(letters, positions.index_map.ndim)
            if len(letters) == positions.index_map.ndim:  # not so a vector in a product
                placed = _einsum_output(letters, output, positions, shape)
                if placed is not None:
                    return placed
    return None


def sums_over_places(equation: str, operands: Sequence[TokenPositions | None]) -> bool:
    """Whether a product sums over an axis with several places; also where that is unknown."""
    inputs, output = _letters(equation)
    for letters, positions in zip(inputs, operands, strict=False):
        if positions is None or positions.grid == (1, 1):
            return True
        if len(letters.replace("...", "")) > positions.index_map.ndim:
            return True
        letters = _spell_dots(letters, positions.index_map.ndim)
        dropped = [i for i, c in enumerate(letters) if c.isalpha() and c not in output]
        if not all(constant_along(positions.index_map, axis) for axis in dropped):
            return True
    return False


def _letters(equation: str) -> tuple[list[str], str]:
    """The letters of each operand of an einsum, and of its result."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if not arrow:  # letters that stand once, in alphabetical order
        output = "".join(
            sorted(c for c, n in Counter(inputs).items() if n == 1 and c.isalpha())
        )
        output = f"...{output}" if "." in inputs else output
    return inputs.split(","), output


def _spell_dots(letters: str, axes: int) -> str:
    """The letters with unused characters for the axes of the ellipsis."""
    hidden = axes - len(letters.replace(".", ""))
    return letters.replace("...", "".join(str(n) for n in range(hidden, 0, -1)))


def _einsum_output(
    letters: str, output: str, positions: TokenPositions, shape: torch.Size
) -> TokenPositions | None:
    index_map = positions.index_map
    dropped = [axis for axis, letter in enumerate(letters) if letter not in output]
    if len(set(letters)) < len(letters):  # a diagonal
        return None
    if not all(constant_along(index_map, axis) for axis in dropped):
        return None
    for axis in dropped:
        index_map = index_map.narrow(axis, 0, 1)
    in_order = [letters.index(letter) for letter in output if letter in letters]
    sizes = [index_map.shape[letters.index(c)] if c in letters else 1 for c in output]
    index_map = index_map.permute(*in_order, *dropped).reshape(sizes)
    return TokenPositions(index_map.expand(shape), positions.grid)


def layout_of(positions: TokenPositions | None, batch_size: int) -> Layout | None:
    """The layout of a tensor with these positions; None if it does not cover the grid."""
    if positions is None:
        return None
    index_map, grid = positions.index_map, positions.grid
    tokens_first = (
        index_map.ndim == 3 and index_map.shape[0] != batch_size == index_map.shape[1]
    )
    if tokens_first and constant_along(index_map, 1):
        layout = layout_of(TokenPositions(index_map.transpose(0, 1), grid), batch_size)
        return layout and replace(layout, axes="n b c")
    if index_map.ndim < 3 or index_map.shape[0] != batch_size:
        return None
    if index_map.ndim == 4 and constant_along(index_map, 1) and index_map.shape[2:] == grid:
        return Layout("b c h w", grid) if _in_raster_order(index_map[0, 0]) else None
    if not constant_along(index_map, -1):
        return None
    ranked = _ranked(index_map[..., 0], grid)  # where every second token was dropped (LeViT)
    if ranked is None:
        return None
    places, (height, width) = ranked.index_map[0], ranked.grid
    if places.shape == (height, width) and _in_raster_order(places):
        return Layout("b h w c", (height, width))
    places = places.flatten()
    order = places.argsort(stable=True)[int((places == 0).sum()) :]
    first, last = int(order.min()), int(order.max())
    in_order = torch.equal(order + 1 - first, _numbered(len(order)).long())
    return Layout(
        "b n c",
        (height, width),
        num_prefix_tokens=first,
        num_suffix_tokens=len(places) - 1 - last,
        order=None if in_order else tuple(order.tolist()),
    )


def _in_raster_order(places: Tensor) -> bool:
    return torch.equal(places.flatten(), _numbered(places.numel()))


def _numbered(count: int) -> Float[Tensor, " n"]:
    return torch.arange(1, count + 1, dtype=torch.float32, device="cpu")
