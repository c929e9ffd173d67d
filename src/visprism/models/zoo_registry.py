"""The zoo: one architecture family per file, one registered function per size.

A name ends in the side of the images that the network is made for, in pixels. Those for 224
have 1000 classes, as ImageNet has, the others 10, as CIFAR-10 has, until `num_classes` says
otherwise.

`OPTIONS` explains the options that families share. Their types and defaults stand in the
signatures.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from torch import nn

from visprism.core.errors import InputError
from visprism.core.options import Option, OptionInfo
from visprism.core.registry import Registry

_SMALL = 32  # pixels, of a network whose name does not say

OPTIONS: Mapping[str, OptionInfo] = {
    "num_classes": OptionInfo("logits; 0 for a network that returns features", minimum=0),
    "in_chans": OptionInfo("channels of an image", minimum=1),
    "img_size": OptionInfo("side of the images in pixels", minimum=1),
    "patch_size": OptionInfo("side of a patch in pixels", minimum=1),
    "depth": OptionInfo("number of blocks", minimum=1),
    "depths": OptionInfo("blocks of each stage", minimum=1),
    "num_heads": OptionInfo(
        "heads of each attention, or of the attentions of each stage", minimum=1
    ),
    "head_dim": OptionInfo("channels of a head; None: width / num_heads", minimum=1),
    "window": OptionInfo("side of a window in positions of the map", minimum=1),
    "kernel": OptionInfo("side of the neighborhood that a position attends to, odd"),
    "qkv_bias": OptionInfo("whether queries, keys and values have a bias"),
    "conv_bias": OptionInfo("whether convolutions have biases"),
    "no_embed_class": OptionInfo("whether the class token has no position embedding"),
    "msas": OptionInfo("MSA blocks of each stage: the last block and every second one before"),
    "shared_bias": OptionInfo("one table of relative positions for all heads of a block"),
    "head": OptionInfo(
        'what the classifier reads: "token" (class token) or "gap" (mean of positions); in VGG '
        'and AlexNet "mlp" (all positions, by an MLP) or "gap"'
    ),
    "smoothing": OptionInfo("spatial smoothing before each subsampling"),
    "mc_dropout": OptionInfo("dropout inside each block", minimum=0, below=1),
    "drop_path_rate": OptionInfo(
        "stochastic depth of the last block; it grows linearly from 0", minimum=0, below=1
    ),
}


def image_size(name: str) -> int:
    """The side of the images, in pixels, that a network of the zoo is made for.

    Example:
        >>> image_size("resnext50_32x4d_224"), image_size("vgg16_bn_32"), image_size("resnet20")
        (224, 32, 32)
    """
    stated = re.search(r"_(\d+)$", name)
    return int(stated[1]) if stated else _SMALL


def extends(
    base: Callable[..., Any], **defaults: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for a family that also takes the options of `base`, some with other defaults.

    The family hands them on as ``**options``; the signature lists them before its own.
    """

    def decorate(family: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(family)
        def extended(*shape: Any, **options: Any) -> Any:
            return family(*shape, **{**defaults, **options})

        signature = inspect.signature(family)
        own = dict(signature.parameters)
        del own["options"]
        shape = [own.pop(k) for k in list(own) if own[k].kind is own[k].POSITIONAL_OR_KEYWORD]
        inherited = {
            key: p.replace(default=defaults.get(key, p.default))
            for key, p in inspect.signature(base).parameters.items()
            if p.kind is p.KEYWORD_ONLY
        }
        parameters = [*shape, *(inherited | own).values()]
        setattr(extended, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
        return extended

    return decorate


def check_per_stage(name: str, values: Sequence[int], depths: Sequence[int]) -> None:
    """Require a number for each stage."""
    if len(values) != len(depths):
        raise InputError(
            f"{name} must have one number per stage ({len(depths)}), got {tuple(values)}"
        )


class Zoo(Registry):
    """The registry of networks."""

    def __init__(self) -> None:
        super().__init__("model", "visprism.models.zoo")

    def register_family(
        self,
        family: Callable[..., Any],
        variants: Mapping[str, tuple[str, Mapping[str, Any]]],
        img_sizes: Sequence[int] = (32, 224),
    ) -> None:
        """Register a function for each variant of a family and each size of images.

        What `family` takes by keyword only is an option of every variant. The other arguments,
        and other defaults of options, come from `variants`: for each name without the size, the
        name in papers and the arguments. Without `img_sizes` the names stay as they are.
        """
        for name, (title, arguments) in variants.items():
            for side in img_sizes or (_SMALL,):
                defaults: dict[str, Any] = {"num_classes": 1000 if side == 224 else 10}
                if "img_size" in inspect.signature(family).parameters:
                    defaults["img_size"] = side
                full_name = f"{name}_{side}" if img_sizes else name
                self.register(_variant(full_name, title, family, {**defaults, **arguments}))


def _variant(
    name: str, title: str, family: Callable[..., Any], arguments: Mapping[str, Any]
) -> Callable[..., Any]:
    """`family` with arguments filled in; its signature has only the options."""
    signature = inspect.signature(family)
    options = {
        key: parameter.replace(default=arguments.get(key, parameter.default))
        for key, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    declared = {
        key: Option(key, p.annotation, p.default, OPTIONS.get(key, OptionInfo(key)))
        for key, p in options.items()
    }

    def build(**chosen: Any) -> Any:
        for key, value in chosen.items():
            if key not in declared:
                raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
            try:
                declared[key].check(value)
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
        return family(**{**arguments, **chosen})

    build.__name__ = build.__qualname__ = name
    build.__module__ = family.__module__
    with_defaults = signature.replace(
        parameters=list(options.values()), return_annotation=nn.Module
    )
    setattr(build, "__signature__", with_defaults)  # noqa: B010
    side, body = image_size(name), inspect.cleandoc(family.__doc__ or "")
    lines = [f"    {key}: {option.help}." for key, option in declared.items()]
    build.__doc__ = "\n".join(
        [f"{title} for images of {side}x{side}.\n\n{body}\n\nArgs:", *lines]
    )
    return build


MODELS = Zoo()
# Built from another network by its name, by a package above this one.
MODELS.declare("alternet", "visprism.harmonize.alternet")
