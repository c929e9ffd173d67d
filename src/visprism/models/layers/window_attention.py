"""Window attention: multi-head self-attention among the places of each window of a map."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad

from visprism.core.errors import InputError


def head_width(width: int, num_heads: int, head_dim: int | None) -> int:
    """Channels of each head: `head_dim`, or an equal share of `width`."""
    if head_dim is None and width % num_heads:
        raise InputError(
            f"num_heads must divide the {width} channels, got {num_heads}. "
            f"Choose a divisor of {width}, or set head_dim."
        )
    return width // num_heads if head_dim is None else head_dim


class WindowAttention(nn.Module):
    """Multi-head self-attention in the windows of a map, for a CNN.

    In every window and head, with queries, keys and values q, k, v of d channels from one
    linear map of the input,

        out = softmax(q k^T / sqrt(d) + B) v,    B[i, j] = relative_bias[place_j - place_i]

    and a linear map of all heads' `out` gives the output. Windows at a border are smaller: what
    fills the last windows up is no key. A window is never larger than the grid. With
    `shared_bias` one table of relative scores serves all heads, as in the code of Park and Kim.

    Costs two products of p^2 d multiply-accumulates for each place and head, for windows of
    p x p places, in addition to the linear maps.

    Source: Liu et al. (2021), Swin Transformer, sec. 3.2, eq. 4; Park and Kim (2022), How do
    vision transformers work?, sec. 4, for its place in a CNN.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int | None = None,
        *,
        num_heads: int,
        head_dim: int | None = 64,
        window: int = 7,
        qkv_bias: bool = False,
        shared_bias: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.window = num_heads, window
        self.head_dim = head_width(in_chans, num_heads, head_dim)
        width = num_heads * self.head_dim
        self.qkv = nn.Linear(in_chans, 3 * width, bias=qkv_bias)
        distances, tables = 2 * window - 1, 1 if shared_bias else num_heads
        table = nn.init.trunc_normal_(torch.empty(tables, distances, distances), std=0.02)
        self.proj = nn.Linear(width, out_chans or in_chans)
        self.relative_bias = nn.Parameter(table)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
        """The output at each pixel, from the pixels of its window."""
        grid = (x.shape[2], x.shape[3])
        p, q = window = (min(self.window, grid[0]), min(self.window, grid[1]))
        fill = -grid[0] % p, -grid[1] % q
        x = x.permute(0, 2, 3, 1)
        if any(fill):
            x = pad(x, (0, 0, 0, fill[1], 0, fill[0]))
        i, j = x.shape[1] // p, x.shape[2] // q
        x = rearrange(x, "b (i p) (j q) c -> (b i j) (p q) c", p=p, q=q)
        x = self._in_windows(x, window, _outside(grid, window) if any(fill) else None)
        x = rearrange(x, "(b i j) (p q) c -> b (i p) (j q) c", i=i, j=j, p=p)
        return x[:, : grid[0], : grid[1]].permute(0, 3, 1, 2)

    def _in_windows(
        self,
        x: Float[Tensor, "n t c"],
        window: tuple[int, int],
        outside: Bool[Tensor, "windows t"] | None,
    ) -> Float[Tensor, "n t d"]:
        """Attention among the tokens of each window, and the linear maps around it."""
        # Thirds of the last axis: the backward pass writes their gradients side by side, and
        # gradients of an axis of three would be stacked and copied once more.
        q, k, v = (
            rearrange(part, "n t (g d) -> n g t d", g=self.num_heads)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = (q * self.head_dim**-0.5) @ k.mT
        bias = self._bias(window).to(scores.dtype)
        if outside is not None:
            bias = bias.masked_fill(outside.to(bias.device)[:, None, None], -torch.inf)
            of_window = rearrange(scores, "(b n) g s t -> b n g s t", n=len(outside))
            scores = rearrange(of_window + bias, "b n g s t -> (b n) g s t")
        else:
            scores = scores + bias
        out = scores.softmax(-1) @ v
        return self.proj(rearrange(out, "n g t d -> n t (g d)"))

    def _bias(self, window: tuple[int, int]) -> Float[Tensor, "tables t t"]:
        """The scores of each two places of a window, by table."""
        rows, columns = (
            place[None, :] - place[:, None] + self.window - 1  # [query, key]
            for place in (torch.arange(n, device=self.relative_bias.device) for n in window)
        )
        entries = self.relative_bias[:, rows[:, None, :, None], columns[None, :, None, :]]
        return entries.flatten(3).flatten(1, 2)


def _outside(grid: tuple[int, int], window: tuple[int, int]) -> Bool[Tensor, "windows t"]:
    """Which places of each window lie beyond the grid."""
    rows, columns = (
        torch.arange(n + -n % side) >= n for n, side in zip(grid, window, strict=True)
    )
    p, q = window
    return rearrange(rows[:, None] | columns[None, :], "(i p) (j q) -> (i j) (p q)", p=p, q=q)
