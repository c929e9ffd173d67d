"""The network of ViTs: timm's, with the options of the zoo."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from visprism.models.layers.heads import HEADS, KeepsMLP, check_head
from visprism.models.layers.patches import PatchEmbed
from visprism.models.layers.window_attention import head_width

POOLS = {"token": "token", "gap": "avg", "gap_mlp": "avg", "attention_pool": "map"}  # timm's


@dataclass(frozen=True, kw_only=True)
class ViTOptions:
    """The options of a family of ViTs, which may have other defaults; see `OPTIONS`.

    For images of another size than `img_size` the position embeddings are interpolated
    (bicubic). `mc_dropout` follows the position embeddings and each linear map of a block.
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
Build = Callable[[int, int, O], VisionTransformer]


class ViT(KeepsMLP, VisionTransformer):
    """timm's ViT, with a choice of heads."""


def family_of(options: type[O]) -> Callable[[Build[O]], Callable[..., VisionTransformer]]:
    """Decorator for a family of ViTs: the fields of a dataclass become keyword arguments.

    The function takes width, number of heads and the dataclass. The family takes width and
    heads by position and the fields by keyword.
    """

    def decorate(build: Build[O]) -> Callable[..., Any]:
        @wraps(build)
        def family(width: int, heads: int, **values: Any) -> VisionTransformer:
            return build(width, heads, options(**values))

        signature = inspect.signature(build)
        shape = list(signature.parameters.values())[:2]
        fields = inspect.signature(options).parameters.values()
        setattr(family, "__signature__", signature.replace(parameters=[*shape, *fields]))  # noqa: B010
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

    `heads` stands for an `options.num_heads` of None. `attention` makes the attention of each
    block instead of timm's. Further `arguments` are those of the class.
    """
    num_heads = heads if options.num_heads is None else options.num_heads
    head_width(width, num_heads, options.head_dim)
    check_head(options.head, ("token", *HEADS))
    if attention is None and options.head_dim:
        attention = partial(
            Attention,
            *(width, num_heads, options.head_dim),
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
