"""The network of ViTs: timm's, with the options of the zoo."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism.core.errors import InputError
from visprism.models.layers.classifier import KeepsMLP
from visprism.models.layers.patches import PatchEmbed
from visprism.models.layers.window_attention import head_width

POOLS = {"token": "token", "gap": "avg", "gap_mlp": "avg", "attention_pool": "map"}  # timm's


@dataclass(frozen=True, kw_only=True)
class ViTOptions:
    """The options of a family of ViTs; a family may have other defaults.

    Args:
        img_size: side of the images in pixels; for other sizes the position embeddings are
            interpolated (bicubic).
        patch_size: side of a patch in pixels.
        in_chans: channels of an image.
        num_classes: number of logits; 0 for features.
        depth: number of blocks.
        num_heads: heads of each attention; by default those of the variant.
        head_dim: channels of a head; by default width / num_heads.
        qkv_bias: whether queries, keys and values have a bias.
        head: classifier head: "token" (class token), "gap" (mean of patch tokens), "gap_mlp"
            (that mean through VGG's MLP) or "attention_pool" (attention of one learned query).
        drop_path_rate: stochastic depth of the last block; it grows linearly with depth.
        mc_dropout: dropout rate after the position embeddings and each linear map of a block.
    """

    img_size: int = 224
    patch_size: int = 16
    in_chans: int = 3
    num_classes: int = 1000
    depth: int = 12
    num_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool = False
    head: str = "token"
    drop_path_rate: float = 0.0
    mc_dropout: float = 0.0


V = TypeVar("V", bound=VisionTransformer)
O = TypeVar("O", bound=ViTOptions)  # noqa: E741 (a type)


class ViT(KeepsMLP, VisionTransformer):
    """timm's ViT, with a choice of heads."""


def family_of(
    options: type[O],
) -> Callable[[Callable[[int, int, O], VisionTransformer]], Callable[..., VisionTransformer]]:
    """Decorator for a family of ViTs: the fields of a dataclass become keyword arguments.

    The function takes width, number of heads and the dataclass. The family takes width and
    heads by position and the fields by keyword.
    """
    fields = inspect.signature(options).parameters.values()
    base = inspect.cleandoc(ViTOptions.__doc__ or "")
    arguments = base[base.index("Args:") :]

    def decorate(build: Callable[[int, int, O], VisionTransformer]) -> Callable[..., Any]:
        @wraps(build)
        def family(width: int, heads: int, **values: Any) -> VisionTransformer:
            return build(width, heads, options(**values))

        signature = inspect.signature(build)
        shape = list(signature.parameters.values())[:2]
        setattr(family, "__signature__", signature.replace(parameters=[*shape, *fields]))  # noqa: B010
        family.__doc__ = f"{inspect.cleandoc(build.__doc__ or '')}\n\n{arguments}"
        return family

    return decorate


def build_vit(
    kind: type[V],
    width: int,
    heads: int,
    options: ViTOptions,
    *,
    attention: Callable[[], nn.Module] | None = None,
    **arguments: Any,
) -> V:
    """A network of a class of timm's ViT with the options of the zoo.

    Args:
        kind: class of the network.
        width: channels of a token.
        heads: of each attention, if `options` has no number.
        options: of the family.
        attention: makes the attention of each block; by default timm's.
        arguments: further arguments of the class.
    """
    num_heads = heads if options.num_heads is None else options.num_heads
    head_width(width, num_heads, options.head_dim)
    if options.head not in POOLS:
        raise InputError(f"head must be one of {', '.join(POOLS)}, got {options.head!r}")
    if attention is None and options.head_dim:
        attention = partial(
            Attention,
            width,
            num_heads,
            options.head_dim,
            qkv_bias=options.qkv_bias,
            proj_drop=options.mc_dropout,
        )
    model = kind(
        img_size=options.img_size,
        patch_size=options.patch_size,
        in_chans=options.in_chans,
        num_classes=options.num_classes,
        depth=options.depth,
        embed_dim=width,
        num_heads=heads if attention else num_heads,
        qkv_bias=options.qkv_bias,
        class_token=options.head == "token",
        global_pool=POOLS[options.head],  # pyrefly: ignore
        drop_path_rate=options.drop_path_rate,
        pos_drop_rate=options.mc_dropout,
        proj_drop_rate=options.mc_dropout,
        embed_layer=PatchEmbed,
        dynamic_img_size=True,
        **arguments,
    )
    if attention is not None:
        for block in model.blocks:
            block.attn = attention()
        model.init_weights()
    if options.head == "gap_mlp":
        assert isinstance(model, ViT)
        model.give_mlp("head", options.num_classes)
    return model
