"""Layout: how a block's output tensor lies on the image's grid, and the way there and back."""

from dataclasses import dataclass
from typing import Literal

from einops import rearrange
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where height, width, channels and prefix tokens stand in a block's output."""

    axes: Literal["b c h w", "b h w c", "b n c"]
    grid: tuple[int, int]  # (height, width)
    num_prefix_tokens: int = 0  # class, distillation and register tokens before the patches
    num_suffix_tokens: int = 0  # the same, after the patches

    def to_map(self, x: Tensor) -> Float[Tensor, "b c h w"]:
        """The feature map: a view of `x`, tokens back on their grid, prefix tokens dropped."""
        if self.axes == "b c h w":
            return x
        if self.axes == "b h w c":
            return rearrange(x, "b h w c -> b c h w")
        height, width = self.grid
        patches = x[:, self.num_prefix_tokens : x.shape[1] - self.num_suffix_tokens]
        return rearrange(patches, "b (h w) c -> b c h w", h=height, w=width)
