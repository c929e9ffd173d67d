"""ViTs with local attention: the "convolutional" ViT of Park and Kim (2022)."""

from dataclasses import dataclass
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor

from visprism.models.layers.heads import check_head
from visprism.models.layers.local_attention import LocalAttention
from visprism.models.layers.vision_transformer import ViT, ViTOptions, build_vit, family_of
from visprism.models.zoo.vit import variants
from visprism.models.zoo_registry import MODELS


class ConvVisionTransformer(ViT):
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


@dataclass(frozen=True, kw_only=True)
class ConvViTOptions(ViTOptions):
    """The options of ViTs with local attention; see `ViTOptions`."""

    head: str = "gap"
    kernel: object = 3  # an odd integer, or "global" or None


@family_of(ConvViTOptions)
def conv_vit(width: int, heads: int, options: ConvViTOptions) -> ConvVisionTransformer:
    """A ViT in which each token attends to the `kernel` x `kernel` tokens around it.

    There is no class token, since it would have no position on the grid. `kernel` is the side
    of the neighborhood in tokens, odd; "global" or None: the full grid.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 2 and fig. 5; Yang et
    al. (2019), Convolutional self-attention networks.
    """
    check_head(options.head)
    attention = partial(
        LocalAttention,
        width,
        heads if options.num_heads is None else options.num_heads,
        kernel=options.kernel,
        head_dim=options.head_dim,
        qkv_bias=options.qkv_bias,
        proj_drop=options.mc_dropout,
    )
    kind = ConvVisionTransformer
    return build_vit(kind, width, heads, options, attention=attention, weight_init="skip")


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
