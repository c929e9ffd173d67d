"""Vision transformers (Dosovitskiy et al. 2021), for images of 32x32, on timm's own."""

import torch
from torch import nn

from visprism.models.zoo import MODELS


@MODELS.register
def vit_pico_patch4_32(
    *, img_size: int = 32, num_classes: int = 10, in_chans: int = 3
) -> nn.Module:
    """ViT of 0.2 million parameters for images of 32x32, with 4x4 patches.

    It has no class token, its table of positions starts as sines and cosines, and its branches
    start at a fifth of their strength (LayerScale): from timm's usual start it learns less in a
    minute of training.

    Source: Beyer et al. (2022), Better plain ViT baselines for ImageNet-1k, for the first two.
    """
    from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=img_size,
        patch_size=4,
        in_chans=in_chans,
        num_classes=num_classes,
        embed_dim=64,
        depth=4,
        num_heads=4,
        class_token=False,
        global_pool="avg",
        init_values=0.2,
        weight_init="jax",
    )
    positions = build_sincos2d_pos_embed(
        list(model.patch_embed.grid_size), dim=model.embed_dim, temperature=100.0
    )
    with torch.no_grad():  # halved, they are as large as the patches' embeddings
        model.get_parameter("pos_embed").copy_(positions / 2)
    return model
