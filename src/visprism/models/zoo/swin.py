"""Swin transformers (Liu et al. 2021), based on timm's, with windows for any grid."""

from collections.abc import Sequence
from typing import cast

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from timm.models.swin_transformer import SwinTransformer, SwinTransformerBlock
from torch import Tensor, nn
from torch.nn.functional import pad

from visprism.core.errors import InputError
from visprism.models.layers.heads import AttentionPool, KeepsMLP, PatchEmbed, check_head
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo_registry import MODELS


class ShiftedWindowAttention(nn.Module):
    """Multi-head self-attention in windows that begin `shift` places off the upper left.

    In every window and head, with queries, keys and values q, k, v of d channels from one
    linear map of the input,

        out = softmax(q k^T / sqrt(d) + B) v,    B[i, j] = table[place_i - place_j]

    and a linear map of all heads' `out` gives the output. Windows at a border are smaller: what
    is rolled over from the other side, and what fills the last windows up, is no key. A window
    is never larger than the grid, and on a grid of one window there is no shift. Weights have
    timm's names. timm differs where windows do not divide the grid: its padding is a key, and
    shifted windows there see across the border.

    Costs two products of p^2 d multiply-accumulates for each place and head, for windows of
    p x p places, in addition to the linear maps.

    Source: Liu et al. (2021), Swin Transformer, sec. 3.2 and eq. 4.
    """

    relative_position_index: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        window: tuple[int, int],
        shift: tuple[int, int] = (0, 0),
        head_dim: int | None = None,
        qkv_bias: bool = True,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.head_dim = head_width(dim, num_heads, head_dim)
        self.num_heads, self.window, self.shift = num_heads, window, shift
        rows, columns = (2 * length - 1 for length in window)
        self.relative_position_bias_table = nn.Parameter(torch.empty(rows * columns, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        index = window_index(window, window)
        self.register_buffer("relative_position_index", index, persistent=False)
        self.qkv = nn.Linear(dim, 3 * num_heads * self.head_dim, bias=qkv_bias)
        self.proj = nn.Linear(num_heads * self.head_dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    @property
    def relative_scores(self) -> Float[Tensor, "heads rows columns"]:
        """What the attention adds to its scores, by head and (key - query) on the grid."""
        rows = 2 * self.window[0] - 1
        table = self.relative_position_bias_table.unflatten(0, (rows, -1))
        return table.permute(2, 0, 1).flip(1, 2)  # the table has (query - key)

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
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
        apart = windows_apart(grid, window, shift) if any(shift) or any(fill) else None
        x = self._in_windows(x, window, apart)
        x = rearrange(x, "(b i j) (p q) c -> b (i p) (j q) c", i=i, j=j, p=p)
        if any(shift):
            x = x.roll(shift, dims=(1, 2))
        return self.proj_drop(x[:, : grid[0], : grid[1]])

    def _in_windows(
        self,
        x: Float[Tensor, "n t c"],
        window: tuple[int, int],
        apart: Bool[Tensor, "windows t t"] | None,
    ) -> Float[Tensor, "n t c"]:
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
        """The table's entries for each two places of a window, for each head."""
        index = self.relative_position_index
        if window != self.window:
            index = window_index(window, self.window).to(index.device)
        entries = self.relative_position_bias_table[index.flatten()]
        return entries.T.unflatten(1, index.shape)


class SwinBlock(nn.Module):
    """A block of timm's Swin with `ShiftedWindowAttention`, and otherwise as timm made it."""

    def __init__(self, made: SwinTransformerBlock, attention: ShiftedWindowAttention) -> None:
        super().__init__()
        self.norm1, self.attn, self.drop_path1 = made.norm1, attention, made.drop_path1
        self.norm2, self.mlp, self.drop_path2 = made.norm2, made.mlp, made.drop_path2

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
        """The sum of the input and of both branches."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


def window_index(window: tuple[int, int], table: tuple[int, int]) -> Int[Tensor, "t t"]:
    """For each query and key of a window, where their offset stands in the flattened table."""
    rows, columns = (
        torch.arange(side)[:, None] - torch.arange(side)[None, :] + length - 1
        for side, length in zip(window, table, strict=True)
    )
    both = rows[:, None, :, None] * (2 * table[1] - 1) + columns[None, :, None, :]
    return both.flatten(2).flatten(0, 1)


def windows_apart(
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


class Swin(KeepsMLP, SwinTransformer):
    """timm's Swin, with a choice of heads."""

    @property
    def pooling(self) -> str:
        """How tokens become one vector, in timm's words."""
        return str(self.head.global_pool.pool_type)


def swin(
    width: int,
    depths: Sequence[int],
    heads: Sequence[int],
    *,
    img_size: int = 224,
    patch_size: int = 4,
    window: int = 7,
    in_chans: int = 3,
    num_classes: int = 1000,
    num_heads: tuple[int, ...] | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = True,
    head: str = "gap",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> Swin:
    """Four stages of attention in windows, every second block's shifted by half a window.

    Each head has its own bias for each relative position. Windows work on any grid and are
    never larger than it (`ShiftedWindowAttention`), so that images of any size run if patches
    divide their sides.

    Source: Liu et al. (2021), Swin Transformer: hierarchical vision transformer using shifted
    windows, sec. 3. The code of "How do vision transformers work?" shares one bias among the
    heads of a block, has no `qkv_bias`, and embeds and merges patches by convolutions with
    biases and without norms: Swin-T for 224 pixels has 28,249,588 parameters there, here
    28,288,354, as the official one, or 28,275,106 without `qkv_bias`.
    """
    numbers = tuple(heads if num_heads is None else num_heads)
    if len(numbers) != len(depths):
        raise InputError(
            f"num_heads must have one number per stage ({len(depths)}), got {len(numbers)}"
        )
    check_head(head)
    for stage, number in enumerate(numbers):
        head_width(width * 2**stage, number, head_dim)
    model = Swin(
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        embed_dim=width,
        depths=tuple(depths),
        num_heads=tuple(heads),
        window_size=window,
        drop_path_rate=drop_path_rate,
        proj_drop_rate=mc_dropout,
        embed_layer=PatchEmbed,
        strict_img_size=False,
        weight_init="skip",
    )
    for stage, number in zip(model.layers, numbers, strict=True):
        blocks = cast(nn.Sequential, stage.get_submodule("blocks"))
        for i, block in enumerate(blocks):
            made = cast(SwinTransformerBlock, block)
            rows, columns = made.window_size  # timm's are not larger than the grid
            attention = ShiftedWindowAttention(
                made.dim,
                number,
                window=(rows, columns),
                shift=(rows // 2, columns // 2) if i % 2 else (0, 0),
                head_dim=head_dim,
                qkv_bias=qkv_bias,
                proj_drop=mc_dropout,
            )
            blocks[i] = SwinBlock(made, attention)
    model.init_weights()
    if head == "gap_mlp":
        model.give_mlp("head.fc", num_classes)
    if head == "attention_pool":
        model.head.register_module("global_pool", _GridPool(model.num_features))
    return model


class _GridPool(AttentionPool):
    """Attention pooling of maps whose channels stand last; timm's head asks for the rest."""

    pool_type = "attention"

    def feat_mult(self) -> int:
        """How many times the channels of the map the vector has."""
        return 1

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b c"]:
        return super().forward(x.permute(0, 3, 1, 2))


_SIZES = {
    "tiny": (96, (2, 2, 6, 2), (3, 6, 12, 24)),
    "small": (96, (2, 2, 18, 2), (3, 6, 12, 24)),
    "base": (128, (2, 2, 18, 2), (4, 8, 16, 32)),
    "large": (192, (2, 2, 18, 2), (6, 12, 24, 48)),
}


def _variants(*, patch_size: int, window: int) -> dict[str, tuple[str, dict]]:
    sizes = {
        f"swin_{size}_patch{patch_size}_window{window}": (
            f"Swin-{size[0].upper()}",
            {"width": width, "depths": depths, "heads": heads},
        )
        for size, (width, depths, heads) in _SIZES.items()
    }
    common = {"patch_size": patch_size, "window": window}
    return {name: (title, {**shape, **common}) for name, (title, shape) in sizes.items()}


MODELS.register_family(swin, _variants(patch_size=1, window=4), (32,))
MODELS.register_family(swin, _variants(patch_size=4, window=7), (224,))
