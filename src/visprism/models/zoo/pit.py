"""PiTs (Heo et al. 2021): ViTs with stages, based on timm's."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from timm.layers import Attention, resample_abs_pos_embed_nhwc, trunc_normal_
from timm.models.pit import PoolingVisionTransformer
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo_registry import MODELS, check_per_stage


class PiT(PoolingVisionTransformer):
    """timm's PiT on images of any size; its class token can have a position embedding."""

    cls_pos: nn.Parameter | None

    def embedded(
        self, x: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b d i j"], Float[Tensor, "b n d"]]:
        """The map of patches with their positions, and the class token."""
        conv = self.patch_embed.conv
        check_strided_patches(tuple(x.shape[2:]), conv.kernel_size[0], conv.stride[0])
        x = self.patch_embed(x)
        grid = [x.shape[2], x.shape[3]]
        table = resample_abs_pos_embed_nhwc(self.pos_embed.permute(0, 2, 3, 1), grid)
        x = self.pos_drop(x + table.permute(0, 3, 1, 2))
        token = self.cls_token if self.cls_pos is None else self.cls_token + self.cls_pos
        return x, token.expand(len(x), -1, -1)

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """The class token behind the last block."""
        return self.norm(self.transformers(self.embedded(x))[1])

    # pyrefly: ignore (timm's takes `pre_logits`)
    def forward_head(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b ..."]:
        """Logits from the token, or the token without classes."""
        return self.head(x[:, 0])


def check_strided_patches(sides: tuple[int, ...], patch: int, stride: int) -> None:
    """Check that overlapping patches end where the image does."""
    if any(side < patch or (side - patch) % stride for side in sides):
        side = patch + max(0, round((max(sides) - patch) / stride)) * stride
        raise InputError(
            f"sides of images must be {patch} plus a multiple of {stride} "
            f"pixels (patches of {patch}x{patch} with stride {stride}), got "
            f"{'x'.join(map(str, sides))}. Use {side}x{side}, for example."
        )


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
    numbers = tuple(heads if num_heads is None else num_heads)
    check_per_stage("num_heads", numbers, depths)
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
    if not no_embed_class:
        position = nn.Parameter(torch.empty_like(model.cls_token))
        trunc_normal_(position, std=0.02)
    model.register_parameter("cls_pos", position)
    for stage, width, number in zip(model.transformers, widths, numbers, strict=True):
        for block in stage.get_submodule("blocks").children():
            attention = Attention(
                width, number, head_dim, qkv_bias=qkv_bias, proj_drop=mc_dropout
            )
            block.register_module("attn", attention)
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
