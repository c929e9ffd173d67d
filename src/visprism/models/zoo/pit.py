"""PiTs (Heo et al. 2021): ViTs with stages, based on timm's."""

from collections.abc import Sequence
from typing import Any

import torch
from timm.layers import Attention, trunc_normal_
from torch import nn

from visprism.core.errors import InputError
from visprism.models.layers.heads import HEADS, AttentionPool, check_head
from visprism.models.layers.pooling_transformer import PiT, check_strided_patches
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo_registry import MODELS


def pit(
    head_channels: int,
    depths: Sequence[int],
    heads: Sequence[int],
    stride: int,
    *,
    img_size: int = 224,
    patch_size: int = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    num_heads: tuple[int, ...] | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
    no_embed_class: bool = False,
    head: str = "token",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> PiT:
    """Three stages of a ViT, of width `head_channels` times `heads`, and grids that halve.

    Patches overlap, with a stride of `stride` pixels. For images of other sizes than `img_size`
    the position embeddings are interpolated (bicubic). timm's networks have `qkv_bias=True` and
    `no_embed_class=True`.

    Source: Heo et al. (2021), Rethinking spatial dimensions of vision transformers, table 1.
    The authors of "How do vision transformers work?" have an MLP of 2.7 times (XS) and once (B)
    the width in the last stages by mistake; here it is 4 times everywhere, as in PiT.
    """
    check_head(head, ("token", *HEADS))
    if no_embed_class and head != "token":
        raise InputError(
            f"no_embed_class must be False without a class token (head={head!r}), got True"
        )
    numbers = tuple(heads if num_heads is None else num_heads)
    if len(numbers) != len(depths):
        raise InputError(
            f"num_heads must have one number per stage ({len(depths)}), got {len(numbers)}"
        )
    widths = [head_channels * number for number in heads]
    for width, number in zip(widths, numbers, strict=True):
        head_width(width, number, head_dim)
    check_strided_patches((img_size, img_size), patch_size, stride)
    model = PiT(
        img_size=img_size,
        patch_size=patch_size,
        stride=stride,
        base_dims=[head_channels] * len(depths),
        depth=list(depths),
        heads=list(heads),
        mlp_ratio=4,
        in_chans=in_chans,
        num_classes=num_classes,
        drop_path_rate=drop_path_rate,
        proj_drop_rate=mc_dropout,
    )
    model.pos_drop = nn.Dropout(mc_dropout)  # its argument has another name before timm 1.0.31
    position = None
    if head != "token":
        model.leave_token_out()
    elif not no_embed_class and model.cls_token is not None:
        position = nn.Parameter(torch.empty_like(model.cls_token))
        trunc_normal_(position, std=0.02)
    model.register_parameter("cls_pos", position)
    for stage, width, number in zip(model.transformers, widths, numbers, strict=True):
        for block in stage.get_submodule("blocks").children():
            attention = Attention(
                width, number, head_dim, qkv_bias=qkv_bias, proj_drop=mc_dropout
            )
            block.register_module("attn", attention)
    model.attn_pool = AttentionPool(widths[-1]).pool if head == "attention_pool" else None
    if head == "gap_mlp":
        model.give_mlp("head", num_classes)
    return model


_SHAPES = {
    "tiny": ("Ti", 32, (2, 6, 4), (2, 4, 8)),
    "xs": ("XS", 48, (2, 6, 4), (2, 4, 8)),
    "small": ("S", 48, (2, 6, 4), (3, 6, 12)),
    "base": ("B", 64, (3, 6, 4), (4, 8, 16)),
}


def _shape(
    width: int, depths: tuple[int, ...], heads: tuple[int, ...], patch_size: int, stride: int
) -> dict[str, Any]:
    shape = {"head_channels": width, "depths": depths, "heads": heads}
    return {**shape, "patch_size": patch_size, "stride": stride}


_SMALL = {
    f"pit_{size}_patch2": (
        f"PiT-{letters} with patches of 2x2 pixels",
        _shape(width, depths, heads, 2, 1),
    )
    for size, (letters, width, depths, heads) in _SHAPES.items()
}
_SMALL["pit_pico_patch4"] = (
    "PiT-Pico (0.6 million parameters) with overlapping patches of 4x4 pixels",
    _shape(16, (2, 4, 2), (2, 4, 8), 4, 2),
)
_LARGE = {
    f"pit_{size}": (
        f"PiT-{letters}",
        _shape(width, depths, heads, *((14, 7) if size == "base" else (16, 8))),
    )
    for size, (letters, width, depths, heads) in _SHAPES.items()
}
MODELS.register_family(pit, _SMALL, (32,))
MODELS.register_family(pit, _LARGE, (224,))
