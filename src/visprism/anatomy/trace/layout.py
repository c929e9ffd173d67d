"""Layout: axes of a block's output tensor, and its conversion to a feature map."""

from dataclasses import dataclass, field
from typing import Literal

from einops import rearrange
from jaxtyping import Float
from torch import Tensor


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

    def to_map(self, x: Tensor) -> Float[Tensor, "b c h w"]:
        """The feature map: tokens back on their grid, prefix tokens dropped.

        A view of `x`, so it costs nothing; a copy only where the tokens are out of order.
        """
        if self.axes == "b c h w":
            return x
        if self.axes == "b h w c":
            return rearrange(x, "b h w c -> b c h w")
        height, width = self.grid
        tokens = x.transpose(0, 1) if self.axes == "n b c" else x.flatten(1, -2)
        if self.order is not None:
            patches = tokens[:, list(self.order)]
        else:
            last = tokens.shape[1] - self.num_suffix_tokens
            patches = tokens[:, self.num_prefix_tokens : last]
        return rearrange(patches, "b (h w) c -> b c h w", h=height, w=width)

    def off_grid(self, x: Tensor) -> Float[Tensor, "b p c"]:
        """The tokens that `to_map` drops, in their order: class, distillation, registers.

        A view of `x` where they stand at one end; empty (p = 0) where all lie on the grid.
        """
        if self.axes in ("b c h w", "b h w c"):
            return x.new_empty(len(x), 0, x.shape[self.channels_axis])
        tokens = x.transpose(0, 1) if self.axes == "n b c" else x.flatten(1, -2)
        number = tokens.shape[1]
        if self.order is not None:
            return tokens[:, sorted(set(range(number)) - set(self.order))]
        if not self.num_suffix_tokens:
            return tokens[:, : self.num_prefix_tokens]
        last = number - self.num_suffix_tokens
        return tokens[:, [*range(self.num_prefix_tokens), *range(last, number)]]
