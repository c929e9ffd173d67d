"""The network of ViTs: timm's, with the zoo's options."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism.core.errors import InputError
from visprism.models.layers.classifier import KeepsMLP
from visprism.models.layers.patches import PatchEmbed
from visprism.models.layers.window_attention import head_width

POOLS = {"token": "token", "gap": "avg", "gap_mlp": "avg", "attention_pool": "map"}  # timm's
V = TypeVar("V", bound=VisionTransformer)


class ViT(KeepsMLP, VisionTransformer):
    """timm's ViT, with a choice of heads."""


def assembled(
    kind: type[V],
    width: int,
    heads: int,
    *,
    num_classes: int,
    num_heads: int | None,
    head_dim: int | None,
    qkv_bias: bool,
    head: str,
    mc_dropout: float,
    attention: Callable[[], nn.Module] | None = None,
    **shape: Any,  # noqa: ANN401 (as timm takes them)
) -> V:
    """A `kind` of timm's ViT with the options of `vit`, and what timm takes by its own names.

    The attention of each block is timm's, or made by `attention`.

    Raises:
        InputError: if patches do not divide the image, heads do not fit the width, or there is
            no such head.
    """
    number = heads if num_heads is None else num_heads
    head_width(width, number, head_dim)
    if head not in POOLS:
        raise InputError(f"unknown head {head!r}; choose {', '.join(POOLS)}")
    if attention is None and head_dim:
        attention = partial(
            Attention, width, number, head_dim, qkv_bias=qkv_bias, proj_drop=mc_dropout
        )
    model = kind(
        num_classes=num_classes,
        embed_dim=width,
        num_heads=heads if attention else number,
        qkv_bias=qkv_bias,
        class_token=head == "token",
        global_pool=POOLS[head],  # pyrefly: ignore
        pos_drop_rate=mc_dropout,
        proj_drop_rate=mc_dropout,
        embed_layer=PatchEmbed,
        dynamic_img_size=True,
        **shape,
    )
    if attention is not None:
        for block in model.blocks:
            block.attn = attention()
        model.init_weights()
    if head == "gap_mlp":
        assert isinstance(model, ViT)
        model.give_mlp("head", num_classes)
    return model
