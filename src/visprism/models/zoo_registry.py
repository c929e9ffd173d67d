"""The zoo: one architecture family per file, one registered function per size.

A name ends in the side of the images that the network is made for, in pixels. Those for 224
have 1000 classes, as ImageNet has, the others 10, as CIFAR-10 has, until `num_classes` says
otherwise. Every network is also timm's, under its name with ``visprism_`` before it.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from visprism.core.registry import F, Registry
from visprism.models import timm_entries
from visprism.models.options import check_network_options

_SMALL = 32  # pixels, of a network whose name does not say


def image_size(name: str) -> int:
    """The side of the images, in pixels, that a network of the zoo is made for.

    Example:
        >>> image_size("resnext50_32x4d_224"), image_size("vgg16_bn_32"), image_size("resnet20")
        (224, 32, 32)
    """
    stated = re.search(r"_(\d+)$", name)
    return int(stated[1]) if stated else _SMALL


class Zoo(Registry):
    """The registry of networks, each of which timm can build too."""

    def __init__(self) -> None:
        super().__init__("model")

    def register(self, function: F) -> F:
        """Add `function` under its own name, and to timm under ``visprism_`` and that name."""
        super().register(function)
        timm_entries.offer(function, image_size(function.__name__))
        return function

    def register_family(
        self,
        family: Callable[..., Any],
        variants: Mapping[str, tuple[str, Mapping[str, Any]]],
        img_sizes: Sequence[int] = (32, 224),
    ) -> None:
        """Register a function for each variant of a family and each size of images.

        Args:
            family: builds a network. What it takes by keyword only is an option of every
                variant; the rest, and other defaults of options, come from `variants`. It takes
                `num_classes`, and `img_size` if that makes a difference.
            variants: for each name less the size, what the field calls it, and arguments.
            img_sizes: in pixels.
        """
        for name, (title, arguments) in variants.items():
            for side in img_sizes:
                defaults: dict[str, Any] = {"num_classes": 1000 if side == 224 else 10}
                if "img_size" in inspect.signature(family).parameters:
                    defaults["img_size"] = side
                function = _variant(f"{name}_{side}", family, {**defaults, **arguments})
                body = inspect.cleandoc(family.__doc__ or "")
                function.__doc__ = f"{title} for images of {side}x{side}.\n\n{body}"
                self.register(function)


def _variant(
    name: str, family: Callable[..., Any], arguments: Mapping[str, Any]
) -> Callable[..., Any]:
    """`family` with arguments filled in; its signature has the options alone."""
    options = {
        key: parameter.replace(default=arguments.get(key, parameter.default))
        for key, parameter in inspect.signature(family).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }

    def build(**chosen: Any) -> Any:
        check_network_options(name, options, chosen)
        return family(**{**arguments, **chosen})

    build.__name__ = build.__qualname__ = name
    build.__module__ = family.__module__
    signature = inspect.signature(family)
    setattr(build, "__signature__", signature.replace(parameters=list(options.values())))  # noqa: B010
    return build


MODELS = Zoo()
# Built from another network by its name, by a package above this one.
MODELS.declare("alternet", "visprism.harmonize.alternet")
