"""ViTs with local attention: the "convolutional" ViT of Park and Kim (2022)."""

from functools import partial
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.models.layers.local_attention import LocalAttention
from visprism.models.layers.vision_transformer import POOLS, ViT, assembled
from visprism.models.zoo.vit import variants
from visprism.models.zoo_registry import MODELS


class ConvVisionTransformer(ViT):
    """A ViT whose tokens stay on their grid, so that an attention can tell its neighbors."""

    def _pos_embed(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
        return super()._pos_embed(x).unflatten(1, x.shape[1:3])

    def forward_features(
        self,
        x: Float[Tensor, "b c h w"],
        attn_mask: Bool[Tensor, "n n"] | None = None,
        is_causal: bool = False,  # noqa: FBT001, FBT002 (as timm's)
    ) -> Float[Tensor, "b n d"]:
        """The tokens of the last block, in a row as a ViT has them."""
        return super().forward_features(x, attn_mask, is_causal).flatten(1, 2)


def conv_vit(
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
    kernel: int | Literal["global"] | None = 3,
    qkv_bias: bool = False,
    head: str = "gap",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> ConvVisionTransformer:
    """A ViT in which each token attends to the `kernel` x `kernel` tokens around it.

    There is no class token, which would be near to none. Images of other sizes than `img_size`
    get their table of positions by bicubic interpolation.

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
        kernel: side of the neighborhood in tokens, odd; "global", or None, for the whole
            grid.
        qkv_bias: whether queries, keys and values have a constant of their own.
        head: what the logits come from: the mean of all tokens, that through VGG's MLP, or one
            learned query's attention.
        drop_path_rate: of the last block (stochastic depth); it grows linearly with depth.
        mc_dropout: rate of dropout behind the positions and every linear map of a block.

    Raises:
        InputError: if patches do not divide the image, heads do not fit the width, the kernel
            is even, or there is no such head.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 2 and fig. 5; Yang et
    al. (2019), Convolutional self-attention networks.
    """
    if head not in POOLS or head == "token":
        raise InputError(f"unknown head {head!r}; choose gap, gap_mlp or attention_pool")
    attention = partial(
        LocalAttention,
        width,
        heads if num_heads is None else num_heads,
        kernel=kernel,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        proj_drop=mc_dropout,
    )
    return assembled(
        ConvVisionTransformer,
        width,
        heads,
        attention=attention,
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
        weight_init="skip",
    )


MODELS.register_family(conv_vit, variants("conv_vit", 2), (32,))
MODELS.register_family(conv_vit, variants("conv_vit", 16), (224,))
