"""Vision transformers (Dosovitskiy et al. 2021), based on timm's."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from timm.layers import Attention
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism.models.layers.patch_embed import PatchEmbed
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo_registry import MODELS, extends

Head = Literal["token", "gap"]  # what the classifier reads
V = TypeVar("V", bound=VisionTransformer)


def build_vit(
    kind: type[V],
    width: int,
    heads: int,
    attention: Callable[..., nn.Module] | None = None,
    head: Head = "token",
    *,
    img_size: int = 224,
    patch_size: int = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    depth: int = 12,
    num_heads: int | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
    **arguments: Any,
) -> V:
    """A network of a class of timm's ViT with the options of the zoo.

    `heads` stands for a `num_heads` of None. `attention` makes the attention of each block
    instead of timm's. Further `arguments` go to the class. For images of another size than
    `img_size` the position embeddings are interpolated (bicubic). `mc_dropout` follows the
    position embeddings and each linear map of a block.
    """
    num_heads = heads if num_heads is None else num_heads
    head_width(width, num_heads, head_dim)
    if attention is None and head_dim:
        attention = Attention
    model = kind(
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        depth=depth,
        embed_dim=width,
        num_heads=heads if attention else num_heads,
        qkv_bias=qkv_bias,
        class_token=head == "token",
        global_pool="token" if head == "token" else "avg",
        drop_path_rate=drop_path_rate,
        pos_drop_rate=mc_dropout,
        proj_drop_rate=mc_dropout,
        embed_layer=PatchEmbed,
        dynamic_img_size=True,
        **arguments,
    )
    if attention is not None:
        options = {"qkv_bias": qkv_bias, "proj_drop": mc_dropout}
        for block in model.blocks:
            block.attn = attention(width, num_heads, head_dim, **options)
        model.init_weights()
    return model


SIZES = {"tiny": ("Ti", 192, 3), "small": ("S", 384, 6), "base": ("B", 768, 12)}


@extends(build_vit)
def vit(width: int, heads: int, *, head: Head = "token", **options: Any) -> VisionTransformer:
    """Patch embedding, then blocks of global self-attention and an MLP of 4x width.

    Source: Dosovitskiy et al. (2021), An image is worth 16x16 words; sizes as in Touvron et al.
    (2021), Training data-efficient image transformers, table 1.
    """
    return build_vit(VisionTransformer, width, heads, None, head, **options)


def variants(family: str, patch_size: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Title and arguments of each size of a family of ViTs, by name."""
    return {
        f"{family}_{size}_patch{patch_size}": (
            f"{title}/{patch_size}",
            {"width": width, "heads": heads, "patch_size": patch_size},
        )
        for size, (title, width, heads) in SIZES.items()
    }


MODELS.register_family(vit, variants("vit", 2), (32,))
MODELS.register_family(vit, variants("vit", 16), (224,))


@extends(
    build_vit,
    img_size=32,
    patch_size=4,
    num_classes=10,
    depth=8,
    qkv_bias=True,
    init_values=0.2,
    weight_init="jax",
)
def small_vit(
    width: int, heads: int, *, head: Head = "gap", **options: Any
) -> VisionTransformer:
    """A ViT that can be trained on small images in minutes.

    It has no class token, its position embeddings start as sines and cosines, and LayerScale
    starts at 0.2: with timm's usual initialization it learns less in a minute of training.

    Source: Beyer et al. (2022), Better plain ViT baselines for ImageNet-1k, for the mean of the
    tokens and the sines and cosines.
    """
    model = build_vit(VisionTransformer, width, heads, None, head, **options)
    positions = build_sincos2d_pos_embed(
        list(model.patch_embed.grid_size), dim=model.embed_dim, temperature=100.0
    )
    with torch.no_grad():  # half, which is the magnitude of the patch embeddings
        table = model.get_parameter("pos_embed")
        table[:, model.num_prefix_tokens :].copy_(positions / 2)
    return model


MODELS.register_family(
    small_vit,
    {
        f"vit_{size.lower()}_patch4": (
            f"ViT-{size}/4 ({parameters} million parameters)",
            {"width": width, "heads": heads, "depth": depth},
        )
        for size, parameters, width, heads, depth in (
            ("Pico", 0.2, 64, 4, 4),
            ("Nano", 0.9, 96, 3, 8),
        )
    },
    (32,),
)


# DeiTs (Touvron et al. 2021): ViTs with a distillation token, based on timm's.


@extends(build_vit, qkv_bias=True)
def deit(width: int, heads: int, **options: Any) -> VisionTransformerDistilled:
    """A ViT with a distillation token, and one classifier for each of its two tokens.

    In training mode it returns two logits: of the class token (for the targets) and of the
    distillation token (for the teacher's predictions); in evaluation mode their mean.

    Source: Touvron et al. (2021), Training data-efficient image transformers & distillation
    through attention, sec. 4 and table 1.
    """
    model = build_vit(VisionTransformerDistilled, width, heads, **options)
    model.set_distilled_training(True)
    return model


MODELS.register_family(deit, variants("deit", 2), (32,))
MODELS.register_family(deit, variants("deit", 16), (224,))
