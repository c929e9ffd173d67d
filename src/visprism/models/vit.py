"""Vision transformers (Dosovitskiy et al. 2021), for images of 32x32, on timm's own."""

from torch import nn

from visprism.models.zoo import MODELS


@MODELS.register
def vit_pico_patch4_32(
    *, img_size: int = 32, num_classes: int = 10, in_chans: int = 3
) -> nn.Module:
    """ViT of 0.2 million parameters with 4x4 patches, so that a 32x32 image has an 8x8 grid.

    Its branches start at a fifth of their strength (LayerScale), without which four blocks
    learn little in a minute.
    """
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
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
