"""Vision transformers (Dosovitskiy et al. 2021), made of timm's own."""

from typing import Any

import torch

from visprism.models.layers.vision_transformer import ViT, assembled
from visprism.models.zoo_registry import MODELS

SIZES = {"tiny": ("Ti", 192, 3), "small": ("S", 384, 6), "base": ("B", 768, 12)}


def vit(
    width: int,
    heads: int,
    *,
    img_size: int = 224,
    patch_size: int = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    depth: int = 12,
    num_heads: int | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
    head: str = "token",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> ViT:
    """Patches become tokens; 12 blocks of attention over all of them and an MLP of 4x width.

    Images of other sizes than `img_size` get their table of positions by bicubic interpolation.

    Args:
        width: channels of a token.
        heads: of each attention, if `num_heads` does not say.
        img_size: side of the images that the table of positions is made for.
        patch_size: side of a patch in pixels.
        in_chans: channels of an image.
        num_classes: number of logits.
        depth: number of blocks.
        num_heads: of each attention.
        head_dim: channels of a head, whatever the width; by default the width is shared.
        qkv_bias: whether queries, keys and values have a constant of their own; timm's have.
        head: what the logits come from: the class token, the mean of all tokens (without class
            token), that through VGG's MLP, or one learned query's attention (without too).
        drop_path_rate: of the last block (stochastic depth); it grows linearly with depth.
        mc_dropout: rate of dropout behind the positions and every linear map of a block.

    Raises:
        InputError: if patches do not divide the image, or heads do not fit the width.

    Source: Dosovitskiy et al. (2021), An image is worth 16x16 words; sizes as in Touvron et al.
    (2021), Training data-efficient image transformers, table 1.
    """
    return assembled(
        ViT,
        width,
        heads,
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        depth=depth,
        num_heads=num_heads,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        head=head,
        drop_path_rate=drop_path_rate,
        mc_dropout=mc_dropout,
    )


def variants(family: str, patch_size: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each size of a family of ViTs, what it is called, and its shape."""
    return {
        f"{family}_{size}_patch{patch_size}": (
            f"{title}/{patch_size}",
            {"width": width, "heads": heads, "patch_size": patch_size},
        )
        for size, (title, width, heads) in SIZES.items()
    }


MODELS.register_family(vit, variants("vit", 2), (32,))
MODELS.register_family(vit, variants("vit", 16), (224,))


def small_vit(
    width: int,
    heads: int,
    *,
    img_size: int = 32,
    patch_size: int = 4,
    in_chans: int = 3,
    num_classes: int = 10,
    depth: int = 8,
    num_heads: int | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = True,
    head: str = "gap",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> ViT:
    """A ViT that learns small images in minutes.

    It has no class token, its table of positions starts as sines and cosines, and its branches
    start at a fifth of their strength (LayerScale): from timm's usual start it learns less in a
    minute of training. Images of other sizes get their table of positions by bicubic
    interpolation. Its options are those of `vit`.

    Raises:
        InputError: as `vit` does.

    Source: Beyer et al. (2022), Better plain ViT baselines for ImageNet-1k, for the first two.
    """
    from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed

    model = assembled(
        ViT,
        width,
        heads,
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        depth=depth,
        num_heads=num_heads,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        head=head,
        drop_path_rate=drop_path_rate,
        mc_dropout=mc_dropout,
        init_values=0.2,
        weight_init="jax",
    )
    positions = build_sincos2d_pos_embed(
        list(model.patch_embed.grid_size), dim=model.embed_dim, temperature=100.0
    )
    with torch.no_grad():  # halved, they are as large as the patches' embeddings
        table = model.get_parameter("pos_embed")
        table[:, model.num_prefix_tokens :].copy_(positions / 2)
    return model


MODELS.register_family(
    small_vit,
    {
        "vit_pico_patch4": (
            "ViT-Pico/4 (0.2 million parameters)",
            {"width": 64, "heads": 4, "depth": 4},
        ),
        "vit_nano_patch4": (
            "ViT-Nano/4 (0.9 million parameters)",
            {"width": 96, "heads": 3, "depth": 8},
        ),
    },
    (32,),
)
