"""Window attention: multi-head self-attention among the places of each window of a map."""

from abc import ABC, abstractmethod

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
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


class RelativeWindowAttention(nn.Module, ABC):
    """Multi-head self-attention in windows that begin `shift` places off the upper left.

    In every window and head, with queries, keys and values q, k, v of d channels from one
    linear map of the input,

        out = softmax(q k^T / sqrt(d) + B) v,    B[i, j] = relative_scores[place_j - place_i]

    and a linear map of all heads' `out` gives the output. Windows at a border are smaller: what
    is rolled over from the other side, and what fills the last windows up, is no key. A window
    is never larger than the grid, and on a grid of one window there is no shift.

    Costs two products of p^2 d multiply-accumulates for each place and head, for windows of
    p x p places, in addition to the linear maps.
    """

    def __init__(
        self,
        qkv: nn.Linear,
        proj: nn.Linear,
        num_heads: int,
        window: tuple[int, int],
        shift: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.qkv, self.proj = qkv, proj
        self.num_heads, self.window, self.shift = num_heads, window, shift
        self.head_dim = proj.in_features // num_heads

    @property
    @abstractmethod
    def relative_scores(self) -> Float[Tensor, "heads rows columns"]:
        """What the attention adds to its scores, by head and (key - query) on the grid."""

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w d"]:
        """The output at each place, from the places of its window."""
        grid = (x.shape[1], x.shape[2])
        p, q = window = (min(self.window[0], grid[0]), min(self.window[1], grid[1]))
        shift = tuple(
            s if length > side else 0
            for s, length, side in zip(self.shift, grid, window, strict=True)
        )
        fill = -grid[0] % p, -grid[1] % q
        if any(fill):
            x = pad(x, (0, 0, 0, fill[1], 0, fill[0]))
        if any(shift):
            x = x.roll((-shift[0], -shift[1]), dims=(1, 2))
        i, j = x.shape[1] // p, x.shape[2] // q
        x = rearrange(x, "b (i p) (j q) c -> (b i j) (p q) c", p=p, q=q)
        apart = _windows_apart(grid, window, shift) if any(shift) or any(fill) else None
        x = self._in_windows(x, window, apart)
        x = rearrange(x, "(b i j) (p q) c -> b (i p) (j q) c", i=i, j=j, p=p)
        if any(shift):
            x = x.roll(shift, dims=(1, 2))
        return x[:, : grid[0], : grid[1]]

    def _in_windows(
        self,
        x: Float[Tensor, "n t c"],
        window: tuple[int, int],
        apart: Bool[Tensor, "windows t t"] | None,
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
        if apart is not None:
            bias = bias.masked_fill(apart.to(bias.device)[:, None], -torch.inf)
            of_window = rearrange(scores, "(b n) g s t -> b n g s t", n=len(apart))
            scores = rearrange(of_window + bias, "b n g s t -> (b n) g s t")
        else:
            scores = scores + bias
        out = scores.softmax(-1) @ v
        return self.proj(rearrange(out, "n g t d -> n t (g d)"))

    def _bias(self, window: tuple[int, int]) -> Float[Tensor, "g t t"]:
        """The scores of each two places of a window, for each head."""
        scores = self.relative_scores
        rows, columns = (
            place[None, :] - place[:, None] + length - 1  # [query, key]
            for place, length in zip(
                (torch.arange(side, device=scores.device) for side in window),
                self.window,
                strict=True,
            )
        )
        entries = scores[:, rows[:, None, :, None], columns[None, :, None, :]]
        return entries.flatten(3).flatten(1, 2)


def _windows_apart(
    grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, ...]
) -> Bool[Tensor, "windows t t"]:
    """For each window of the rolled grid, which keys a query must not see.

    Regions are numbered along each axis: 0, or 1 for what was rolled over from the other side,
    or 2 for what fills the grid up. Padding sees padding, so that no query sees nothing.
    """
    rows, columns = (
        _region(length, side, s) for length, side, s in zip(grid, window, shift, strict=True)
    )
    both = rows[:, None] * 3 + columns[None, :]
    both = both.masked_fill((rows[:, None] == 2) | (columns[None, :] == 2), 9)
    p, q = window
    tokens = rearrange(both, "(i p) (j q) -> (i j) (p q)", p=p, q=q)
    return tokens[:, :, None] != tokens[:, None, :]


def _region(length: int, side: int, shift: int) -> Int[Tensor, "padded"]:
    place = torch.arange(length + -length % side)
    rolled_over = (place < shift).int()
    return rolled_over.masked_fill(place >= length, 2).roll(-shift)


class WindowAttention(RelativeWindowAttention):
    """`RelativeWindowAttention` in square windows of a map, for a CNN.

    With `shared_bias` one table of relative scores serves all heads, as in the code of Park and
    Kim.

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
        width = num_heads * head_width(in_chans, num_heads, head_dim)
        qkv = nn.Linear(in_chans, 3 * width, bias=qkv_bias)
        distances, tables = 2 * window - 1, 1 if shared_bias else num_heads
        table = nn.init.trunc_normal_(torch.empty(tables, distances, distances), std=0.02)
        proj = nn.Linear(width, out_chans or in_chans)
        super().__init__(qkv, proj, num_heads, (window, window))
        self.relative_bias = nn.Parameter(table)

    @property
    def relative_scores(self) -> Float[Tensor, "heads rows columns"]:
        """The table of each head."""
        return self.relative_bias.expand(self.num_heads, -1, -1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
        """The output at each pixel, from the pixels of its window."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
