"""The zoo inside timm: `timm.create_model("visprism_resnet50_32", features_only=True)`.

timm ignores the part of a name before a slash and would build another network, so the prefix
ends in an underscore. Networks with weights inside the package give them to
`timm.create_model("visprism_resnet20.cifar10", pretrained=True)`.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import FeatureGetterNet, FeatureHookNet
from torch import nn

from visprism.core.errors import InputError
from visprism.models.pretrained import PretrainedCard, pretrained_cards
from visprism.models.spec import ModelSpec, explain_unknown_argument

PREFIX = "visprism_"
default_cfgs: dict[str, Any] = {}  # timm looks for this name in the module of an entry
__all__: list[str] = ["PREFIX", "offer"]  # and adds the entry's name here


def offer(function: Callable[..., Any], side: int) -> None:
    """Register a network for images of `side` pixels with timm."""
    name = PREFIX + function.__name__
    options = inspect.signature(function).parameters
    classes = options["num_classes"].default if "num_classes" in options else 1000
    sized = "img_size" in options
    cards = [card for card in pretrained_cards().values() if PREFIX + card.architecture == name]

    def entry(pretrained: bool = False, **arguments: Any) -> nn.Module:
        if pretrained and not cards:
            raise InputError(
                f"pretrained must be False for {name}, which has no pretrained weights"
            )
        if sized:  # one number, where timm would give two
            arguments.setdefault("img_size", side)
        if pretrained:  # timm adapts the first and the last layer to other numbers of channels
            with torch.device("meta"):
                ends = _ends(function(**cards[0].arguments))
            overlay = arguments.get("pretrained_cfg_overlay") or {}
            arguments["pretrained_cfg_overlay"] = {**ends, **overlay}
        features = {"feature_cls": _features, "out_indices": None}
        with explain_unknown_argument(ModelSpec(name, "zoo", name, arguments), function):
            model = build_model_with_cfg(
                function, name, pretrained=pretrained, feature_cfg=features, **arguments
            )
        if not arguments.get("features_only"):
            model.pretrained_cfg.update(_ends(model))
        return model

    config = {"num_classes": classes, "input_size": (3, side, side), "fixed_input_size": sized}
    configs: dict[str, Any] = {
        f"{name}.{card.tag}": {**config, **_source(card)} for card in cards
    }
    default_cfgs.update(generate_default_cfgs(configs or {name: config}))
    entry.__name__ = entry.__qualname__ = name
    entry.__doc__ = function.__doc__
    globals()[name] = entry
    register_model(entry)


def _source(card: PretrainedCard) -> dict[str, Any]:
    """File and preprocessing of the weights, as in timm's `pretrained_cfg`."""
    images = card.preprocessing
    return {
        "file": str(card.weights),
        "num_classes": len(card.class_names),
        "input_size": (3, *images.size),
        "mean": images.mean,
        "std": images.std,
        "interpolation": images.interpolation,
        "crop_pct": images.crop,
        "license": card.data_license,
    }


def _ends(model: nn.Module) -> dict[str, Any]:
    """Names of the first convolution and the classifiers, as in timm's `pretrained_cfg`."""
    names = {id(module): name for name, module in model.named_modules()}
    first = next(m for m in model.modules() if isinstance(m, nn.Conv2d))
    ends = getattr(model, "get_classifier")()  # noqa: B009 (nn.Module does not declare it)
    last = [
        names[id(end[-1] if isinstance(end, nn.Sequential) else end)]
        for end in (ends if isinstance(ends, tuple) else (ends,))
    ]
    return {
        "first_conv": names[id(first)],
        "classifier": tuple(last) if isinstance(ends, tuple) else last[0],
    }


def _features(
    model: nn.Module, *, out_indices: Sequence[int] | int | None, output_fmt: str = "NCHW"
) -> nn.Module:
    """A network that gives feature maps, of all stages that `model.feature_info` names."""
    stages = len(getattr(model, "feature_info"))  # noqa: B009 (nn.Module does not declare it)
    chosen = range(stages) if out_indices is None else out_indices
    chosen = range(-chosen, 0) if isinstance(chosen, int) else chosen
    beyond = [i for i in chosen if not -stages <= i < stages]
    if beyond:
        raise InputError(
            f"out_indices must be 0 to {stages - 1} for a "
            f"{type(model).__name__}, got {beyond[0]}"
        )
    indices = tuple(i % stages for i in chosen)
    if hasattr(model, "forward_intermediates"):
        return FeatureGetterNet(model, out_indices=indices)
    return FeatureHookNet(model, out_indices=indices)
