"""PiTs (Heo et al. 2021): ViTs with stages, made of timm's own."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from timm.layers import Attention, resample_abs_pos_embed_nhwc, trunc_normal_
from timm.models.pit import PoolingVisionTransformer
from torch import Tensor, nn

from visprism.errors import InputError
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo import MODELS


class PiT(PoolingVisionTransformer):
    """timm's PiT on images of any size; its class token can have a position of its own."""

    cls_pos: nn.Parameter | None

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """The class token behind the last block.

        Raises:
            InputError: if patches leave pixels of the image over.
        """
        refuse_remainder(tuple(x.shape[2:]), self.patch_embed.conv)
        x = self.patch_embed(x)
        grid = [x.shape[2], x.shape[3]]
        table = resample_abs_pos_embed_nhwc(self.pos_embed.permute(0, 2, 3, 1), grid)
        x = self.pos_drop(x + table.permute(0, 3, 1, 2))
        token = self.cls_token if self.cls_pos is None else self.cls_token + self.cls_pos
        _, token = self.transformers((x, token.expand(len(x), -1, -1)))
        return self.norm(token)


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
    num_heads: Sequence[int] | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
    no_embed_class: bool = False,
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> PiT:
    """Three stages of a ViT, between which a strided convolution halves the grid.

    Patches overlap: the next begins `stride` pixels further. The logits come from the class
    token. Images of other sizes than `img_size` get their table of positions by bicubic
    interpolation.

    Args:
        head_channels: width of a stage divided by its `heads`.
        depths: blocks of each stage.
        heads: of the attentions of each stage, if `num_heads` does not say.
        stride: between patches, in pixels.
        img_size: side of the images that the table of positions is made for.
        patch_size: side of a patch in pixels.
        in_chans: channels of an image.
        num_classes: number of logits.
        num_heads: of the attentions of each stage.
        head_dim: channels of a head, whatever the width; by default the width is shared.
        qkv_bias: whether queries, keys and values have a constant of their own; timm's have.
        no_embed_class: whether the class token goes without an entry for its position; timm's
            does.
        drop_path_rate: of the last block (stochastic depth); it grows linearly with depth.
        mc_dropout: rate of dropout behind the positions and every linear map of a block.

    Raises:
        InputError: if patches leave pixels of the image over, or heads do not fit the widths.

    Source: Heo et al. (2021), Rethinking spatial dimensions of vision transformers, table 1.
    The authors of "How do vision transformers work?" have an MLP of 2.7 times (XS) and once (B)
    the width in the last stages by mistake; here it is 4 times everywhere, as in PiT.
    """
    numbers = tuple(heads if num_heads is None else num_heads)
    if len(numbers) != len(depths):
        raise InputError(
            f"got heads for {len(numbers)} stages; PiT wants one number for each of its "
            f"{len(depths)} stages"
        )
    widths = [head_channels * number for number in heads]
    for width, number in zip(widths, numbers, strict=True):
        head_width(width, number, head_dim)
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
    refuse_remainder((img_size, img_size), model.patch_embed.conv)
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


def refuse_remainder(sides: tuple[int, ...], patches: nn.Conv2d) -> None:
    """Check that overlapping patches end where the image does.

    Raises:
        InputError: if pixels would be left over.
    """
    (patch, _), (stride, _) = patches.kernel_size, patches.stride
    if any(side < patch or (side - patch) % stride for side in sides):
        raise InputError(
            f"images of {'x'.join(map(str, sides))} pixels are not {patch} plus a multiple "
            f"of {stride} high and wide, as patches of {patch}x{patch} every {stride} want; "
            f"choose img_size={patch + round((max(sides) - patch) / stride) * stride}"
        )


_SHAPES = {
    "tiny": ("Ti", 32, (2, 6, 4), (2, 4, 8)),
    "xs": ("XS", 48, (2, 6, 4), (2, 4, 8)),
    "small": ("S", 48, (2, 6, 4), (3, 6, 12)),
    "base": ("B", 64, (3, 6, 4), (4, 8, 16)),
}

for _size, (_letters, _width, _depths, _heads) in _SHAPES.items():
    _shape = {"head_channels": _width, "depths": _depths, "heads": _heads}
    MODELS.register_family(
        pit,
        {
            f"pit_{_size}_patch2": (
                f"PiT-{_letters} with patches of 2x2 pixels",
                {**_shape, "patch_size": 2, "stride": 1},
            )
        },
        (32,),
    )
    _patch, _stride = (14, 7) if _size == "base" else (16, 8)
    MODELS.register_family(
        pit,
        {
            f"pit_{_size}": (
                f"PiT-{_letters}",
                {**_shape, "patch_size": _patch, "stride": _stride},
            )
        },
        (224,),
    )
