"""Swin transformers (Liu et al. 2021), based on timm's."""

from collections.abc import Sequence

from timm.models.swin_transformer import SwinTransformer

from visprism.models.layers.patch_embed import PatchEmbed
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo_registry import MODELS, check_per_stage


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
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> SwinTransformer:
    """Four stages of attention in windows, every second block's shifted by half a window.

    Each head has its own bias for each relative position. Images of any size run if patches
    divide their sides. Where windows do not divide the grid of patches, zeros fill it up, and
    are keys as in the authors' code.

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
    return SwinTransformer(
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        embed_dim=width,
        depths=tuple(depths),
        num_heads=numbers,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        window_size=window,
        drop_path_rate=drop_path_rate,
        proj_drop_rate=mc_dropout,
        embed_layer=PatchEmbed,
        strict_img_size=False,
    )


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
