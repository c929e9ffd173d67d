"""The zoo inside timm: `timm.create_model("visprism_resnet50_32", features_only=True)`.

timm drops what stands before a slash in a name and would find a network of its own, so the
prefix is joined by an underscore.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import FeatureGetterNet, FeatureHookNet
from torch import nn

from visprism.core.errors import InputError
from visprism.models.build_errors import explain_unknown_argument
from visprism.models.spec import ModelSpec

PREFIX = "visprism_"
default_cfgs: dict[str, Any] = {}  # timm looks for this name in the module of an entry
__all__: list[str] = ["PREFIX", "offer"]  # and adds the entry's name here


def offer(function: Callable[..., Any], side: int) -> None:
    """Register with timm what `function` builds, a network for images of `side` pixels."""
    name = PREFIX + function.__name__
    options = inspect.signature(function).parameters
    classes = options["num_classes"].default if "num_classes" in options else 1000
    sized = "img_size" in options

    def entry(pretrained: bool = False, **arguments: Any) -> nn.Module:  # noqa: ANN401, FBT001, FBT002
        if pretrained:
            raise InputError(
                f"{name} comes without pretrained weights; leave pretrained=True out"
            )
        if sized:  # one number, where timm would give two
            arguments.setdefault("img_size", side)
        features = {"feature_cls": _features, "out_indices": None}
        with explain_unknown_argument(ModelSpec(name, "zoo", name, arguments), function):
            model = build_model_with_cfg(
                function, name, pretrained=False, feature_cfg=features, **arguments
            )
        if not arguments.get("features_only"):
            model.pretrained_cfg.update(_ends(model))
        return model

    config = {"num_classes": classes, "input_size": (3, side, side), "fixed_input_size": sized}
    default_cfgs.update(generate_default_cfgs({name: config}))
    entry.__name__ = entry.__qualname__ = name
    entry.__doc__ = function.__doc__
    globals()[name] = entry
    register_model(entry)


def _ends(model: nn.Module) -> dict[str, Any]:
    """The names of the first convolution and of the last layers, in timm's words."""
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
    model: nn.Module,
    *,
    out_indices: Sequence[int] | int | None,
    output_fmt: str = "NCHW",  # noqa: ARG001 (of the tokens inside, as timm says; maps are NCHW)
) -> nn.Module:
    """A network that gives feature maps, of all stages that `model.feature_info` names."""
    stages = len(getattr(model, "feature_info"))  # noqa: B009 (nn.Module does not declare it)
    chosen = range(stages) if out_indices is None else out_indices
    chosen = range(-chosen, 0) if isinstance(chosen, int) else chosen
    beyond = [i for i in chosen if not -stages <= i < stages]
    if beyond:
        raise InputError(
            f"out_indices names feature map {beyond[0]}, but {type(model).__name__} has "
            f"{stages}, so 0 ... {stages - 1}"
        )
    indices = tuple(i % stages for i in chosen)
    if hasattr(model, "forward_intermediates"):
        return FeatureGetterNet(model, out_indices=indices)
    return FeatureHookNet(model, out_indices=indices)
