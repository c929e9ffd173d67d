"""ViTs with local attention: the "convolutional" ViT of Park and Kim (2022)."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from visprism.core.errors import InputError
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo.vit import build_vit, variants
from visprism.models.zoo_registry import MODELS, extends


class LocalAttention(Attention):
    """Multi-head self-attention of each token with the k x k tokens around it.

    For a token at place i of the grid, in each head, with queries, keys and values q, k, v of d
    channels from one linear map of the input,

        out_i = sum over j near i of softmax_j(q_i . k_j / sqrt(d)) v_j

    and a linear map of all heads' `out` gives the output. Tokens outside the image are no keys:
    at a border there are fewer neighbors, and the softmax is over those. With a `kernel` of
    "global" (or None) every token is near, which is a ViT's attention. A `head_dim` of None
    shares `dim` among the heads.

    Costs two products of d multiply-accumulates for each pair of tokens, most of them masked.

    Source: Yang et al. (2019), Convolutional self-attention networks, in two dimensions; Park
    and Kim (2022), How do vision transformers work?, fig. 5.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        head_dim: int | None = None,
        *,
        kernel: object = 3,
        **options: Any,
    ) -> None:
        kernel = None if kernel == "global" else kernel
        odd = isinstance(kernel, int) and kernel > 0 and kernel % 2 == 1
        if kernel is not None and not odd:
            raise InputError(
                f"kernel must be an odd number of tokens or 'global', got {kernel!r}"
            )
        super().__init__(dim, num_heads, head_width(dim, num_heads, head_dim), **options)
        self.kernel = kernel

    def forward(
        self,
        x: Float[Tensor, "b h w c"],
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "b h w c"]:
        """The output at each token, from the tokens around it."""
        near = None
        if self.kernel is not None:
            near = _near(x.shape[1], x.shape[2], self.kernel // 2).to(x.device)
        return super().forward(x.flatten(1, 2), attn_mask=near).view_as(x)


def _near(height: int, width: int, reach: int) -> Bool[Tensor, "n n"]:
    """Which tokens each token of a grid sees."""
    rows, columns = (
        (place[:, None] - place).abs() <= reach
        for place in (torch.arange(height), torch.arange(width))
    )
    return (rows[:, None, :, None] & columns[None, :, None, :]).flatten(2).flatten(0, 1)


class ConvVisionTransformer(VisionTransformer):
    """A ViT whose tokens keep the shape of the grid, as local attention requires."""

    def _pos_embed(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
        return super()._pos_embed(x).unflatten(1, x.shape[1:3])

    def forward_features(
        self,
        x: Float[Tensor, "b c h w"],
        attn_mask: Bool[Tensor, "n n"] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "b n d"]:
        """The tokens of the last block as a sequence."""
        return super().forward_features(x, attn_mask, is_causal).flatten(1, 2)


@extends(build_vit, weight_init="skip")
def conv_vit(
    width: int, heads: int, *, kernel: object = 3, **options: Any
) -> ConvVisionTransformer:
    """A ViT in which each token attends to the `kernel` x `kernel` tokens around it.

    There is no class token, since it would have no position on the grid. `kernel` is the side
    of the neighborhood in tokens, odd; "global" or None: the full grid.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 2 and fig. 5; Yang et
    al. (2019), Convolutional self-attention networks.
    """
    attention = partial(LocalAttention, kernel=kernel)
    return build_vit(ConvVisionTransformer, width, heads, attention, "gap", **options)


MODELS.register_family(conv_vit, variants("conv_vit", 2), (32,))
MODELS.register_family(conv_vit, variants("conv_vit", 16), (224,))
MODELS.register_family(
    conv_vit,
    {
        "conv_vit_pico_patch4": (
            "ConvViT-Pico/4 (0.2 million parameters)",
            {"width": 64, "heads": 4, "depth": 4, "patch_size": 4, "num_classes": 10},
        )
    },
    (32,),
)
