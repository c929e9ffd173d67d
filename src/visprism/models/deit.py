"""DeiTs (Touvron et al. 2021): ViTs with a distillation token, timm's own."""

from timm.layers import Attention
from timm.models.deit import VisionTransformerDistilled

from visprism.models.layers.patches import PatchEmbed
from visprism.models.layers.window_attention import head_width
from visprism.models.vit import variants
from visprism.models.zoo import MODELS


def deit(
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
    qkv_bias: bool = True,
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> VisionTransformerDistilled:
    """A ViT with a second token, which learns from a teacher, and a second classifier.

    In training mode it gives two logits, those of the class token (for the targets) and those
    of the distillation token (for the teacher's predictions); in evaluation mode their mean.

    Args:
        width: channels of a token.
        heads: of each attention, if `num_heads` does not say.
        img_size: side of the images that the table of positions is made for; images of other
            sizes get it by bicubic interpolation.
        patch_size: side of a patch in pixels.
        in_chans: channels of an image.
        num_classes: number of logits.
        depth: number of blocks.
        num_heads: of each attention.
        head_dim: channels of a head, whatever the width; by default the width is shared.
        qkv_bias: whether queries, keys and values have a constant of their own.
        drop_path_rate: of the last block (stochastic depth); it grows linearly with depth.
        mc_dropout: rate of dropout behind the positions and every linear map of a block.

    Raises:
        InputError: if patches do not divide the image, or heads do not fit the width.

    Source: Touvron et al. (2021), Training data-efficient image transformers & distillation
    through attention, sec. 4 and table 1.
    """
    number = heads if num_heads is None else num_heads
    head_width(width, number, head_dim)
    model = VisionTransformerDistilled(
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        embed_dim=width,
        depth=depth,
        num_heads=heads if head_dim else number,
        qkv_bias=qkv_bias,
        drop_path_rate=drop_path_rate,
        pos_drop_rate=mc_dropout,
        proj_drop_rate=mc_dropout,
        embed_layer=PatchEmbed,
        dynamic_img_size=True,
    )
    if head_dim:
        for block in model.blocks:
            block.attn = Attention(
                width, number, head_dim, qkv_bias=qkv_bias, proj_drop=mc_dropout
            )
        model.init_weights()
    model.set_distilled_training(True)
    return model


MODELS.register_family(deit, variants("deit", 2), (32,))
MODELS.register_family(deit, variants("deit", 16), (224,))
