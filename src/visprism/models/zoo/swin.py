"""Swin transformers (Liu et al. 2021), based on timm's, with windows for any grid."""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from timm.models.swin_transformer import SwinTransformer, SwinTransformerBlock
from torch import Tensor, nn

from visprism.models.layers.heads import AttentionPool, Head, PatchEmbed, classifier_of
from visprism.models.layers.window_attention import RelativeWindowAttention, head_width
from visprism.models.zoo_registry import MODELS, check_per_stage


class ShiftedWindowAttention(RelativeWindowAttention):
    """`RelativeWindowAttention` with timm's names of weights.

    timm differs where windows do not divide the grid: its padding is a key, and shifted windows
    there see across the border.

    Source: Liu et al. (2021), Swin Transformer, sec. 3.2 and eq. 4.
    """

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
        rows, columns = (2 * length - 1 for length in window)
        table = nn.init.trunc_normal_(torch.empty(rows * columns, num_heads), std=0.02)
        width = num_heads * head_width(dim, num_heads, head_dim)
        qkv, proj = nn.Linear(dim, 3 * width, bias=qkv_bias), nn.Linear(width, dim)
        super().__init__(qkv, proj, num_heads, window, shift)
        self.relative_position_bias_table = nn.Parameter(table)
        self.proj_drop = nn.Dropout(proj_drop)

    @property
    def relative_scores(self) -> Float[Tensor, "heads rows columns"]:
        """Timm's table, in which offsets are (query - key) and heads stand last."""
        table = self.relative_position_bias_table.unflatten(0, (2 * self.window[0] - 1, -1))
        return table.permute(2, 0, 1).flip(1, 2)

    def forward(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
        """The output at each place, from the places of its window."""
        return self.proj_drop(super().forward(x))


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
    head: Head = "gap",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> SwinTransformer:
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
    check_per_stage("num_heads", numbers, depths)
    for stage, number in enumerate(numbers):
        head_width(width * 2**stage, number, head_dim)
    model = SwinTransformer(
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
        model.set_submodule("head.fc", classifier_of(head, model.num_features, num_classes))
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
