"""Vision transformers (Dosovitskiy et al. 2021), based on timm's."""

from dataclasses import dataclass
from typing import Any

import torch
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed

from visprism.models.layers.vision_transformer import ViT, ViTOptions, build_vit, family_of
from visprism.models.zoo_registry import MODELS

SIZES = {"tiny": ("Ti", 192, 3), "small": ("S", 384, 6), "base": ("B", 768, 12)}


@family_of(ViTOptions)
def vit(width: int, heads: int, options: ViTOptions) -> ViT:
    """Patch embedding, then blocks of global self-attention and an MLP of 4x width.

    Source: Dosovitskiy et al. (2021), An image is worth 16x16 words; sizes as in Touvron et al.
    (2021), Training data-efficient image transformers, table 1.
    """
    return build_vit(ViT, width, heads, options)


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


@dataclass(frozen=True, kw_only=True)
class SmallViTOptions(ViTOptions):
    """The options of ViTs for small images; see `ViTOptions`."""

    img_size: int = 32
    patch_size: int = 4
    num_classes: int = 10
    depth: int = 8
    qkv_bias: bool = True
    head: str = "gap"


@family_of(SmallViTOptions)
def small_vit(width: int, heads: int, options: SmallViTOptions) -> ViT:
    """A ViT that can be trained on small images in minutes.

    It has no class token, its position embeddings start as sines and cosines, and LayerScale
    starts at 0.2: with timm's usual initialization it learns less in a minute of training.

    Source: Beyer et al. (2022), Better plain ViT baselines for ImageNet-1k, for the mean of the
    tokens and the sines and cosines.
    """
    model = build_vit(ViT, width, heads, options, init_values=0.2, weight_init="jax")
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
