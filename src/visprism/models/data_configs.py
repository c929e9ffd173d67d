"""Data configurations: the preprocessing that models of any library state.

An `img_size` (or `image_size`) that the user gives to the model is the size of its images.
Images of another size than the authors' are not cropped, since the crop applies to that size.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from visprism.core.errors import InputError
from visprism.core.preprocessing import NORMALIZATIONS, Preprocessing

_RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # numbers of PIL's filters

Arguments = Mapping[str, Any]
_UNKNOWN = Preprocessing((224, 224), *NORMALIZATIONS["none"], stated=False)


def preprocessing_from(given: Any) -> Preprocessing:
    """The preprocessing from what libraries state it with.

    Args:
        given: a `Preprocessing`, the configuration of a model of timm, weights of torchvision
            or their transforms, or an image processor of Hugging Face.
    """
    if isinstance(given, Preprocessing):
        return given
    if isinstance(given, type):  # weights of torchvision, of which none is named
        given = getattr(given, "DEFAULT", given)
    if hasattr(given, "transforms") and hasattr(given, "meta"):  # weights of torchvision
        given = given.transforms()
    if hasattr(given, "crop_size") and hasattr(given, "resize_size"):
        return _from_transforms(given)
    values = given if isinstance(given, Mapping) else getattr(given, "to_dict", dict)()
    if "image_mean" in values:
        return from_image_processor(values, {})
    if _states(values):
        return _from_timm(values, {})
    raise InputError(
        "preprocessing must be a Preprocessing, a configuration of timm, weights or transforms "
        f"of torchvision, or an image processor of Hugging Face, got {type(given).__name__}"
    )


def _from_timm(stated: Mapping[str, Any], arguments: Arguments) -> Preprocessing:
    """The preprocessing of `timm.data.resolve_data_config`."""
    from timm.data import resolve_data_config

    config: Mapping[str, Any] = resolve_data_config(pretrained_cfg=dict(stated))
    authors = Preprocessing(
        size=_pair(config["input_size"][1:]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=config["interpolation"],
        crop=config["crop_pct"],
        squash=config["crop_mode"] == "squash",
    )
    return _resized(authors, arguments)


def from_torchvision(name: str, arguments: Arguments) -> Preprocessing:
    """The transforms that belong to the default weights of a torchvision model."""
    from torchvision.models import get_model_weights

    weights = get_model_weights(name)["DEFAULT"]
    return _resized(_from_transforms(weights.transforms()), arguments)


def _from_transforms(transforms: Any) -> Preprocessing:
    (crop,), (resized,) = transforms.crop_size, transforms.resize_size
    return Preprocessing(
        size=(crop, crop),
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        interpolation=transforms.interpolation.value,
        crop=crop / resized,
    )


def from_image_processor(processor: Mapping[str, Any], arguments: Arguments) -> Preprocessing:
    """The configuration of the image processor of a Hugging Face model."""
    if "data_config" in processor:  # of a model of timm
        return _from_timm(processor["data_config"], arguments)
    if processor.get("do_flip_channel_order"):
        raise InputError(
            "the channels of a model's images must be RGB, got BGR (do_flip_channel_order). "
            "Load the model in Python, within a module that reverses them."
        )
    kind = processor.get("image_processor_type")
    stated = processor.get("size", 224)
    resized, crop = _pair(stated), processor.get("crop_pct")
    cropped = processor.get("crop_size") if processor.get("do_center_crop") else None
    size = _pair(cropped) if cropped else resized
    squash = isinstance(stated, Mapping) and bool(stated.get("width"))
    if kind == "PerceiverImageProcessor":  # which crops before it resizes
        size, resized, squash = resized, size, False
    elif kind == "LevitImageProcessor":
        crop = 224 / 256
    elif kind == "ConvNextImageProcessor" and resized[0] >= 384:
        crop, squash = 1.0, True
    plain = not processor.get("do_normalize", kind is None)
    power = 2 if processor.get("include_top") else 1  # EfficientNet divides twice
    authors = Preprocessing(
        size=size,
        mean=(0.0,) * 3 if plain else tuple(processor["image_mean"]),
        std=(1.0,) * 3 if plain else tuple(s**power for s in processor["image_std"]),
        interpolation=_RESAMPLING[int(processor.get("resample", 3))],
        crop=crop or min(1.0, size[0] / resized[0]),
        squash=squash,
    )
    return _resized(authors, arguments)


def from_attributes(
    model: nn.Module, arguments: Arguments, *, default: Preprocessing = _UNKNOWN
) -> Preprocessing:
    """The preprocessing that a model itself states, or `default` in its size.

    See `stated_by` for the preprocessing. The size is the attribute ``img_size``, or
    ``config.image_size`` as in Hugging Face.
    """
    stated = stated_by(model)
    if stated is not None:
        return _resized(stated, arguments)
    config = getattr(model, "config", None)
    size = getattr(model, "img_size", None) or getattr(config, "image_size", None)
    return _resized(replace(default, size=_pair(size or default.size)), arguments)


def stated_by(model: nn.Module) -> Preprocessing | None:
    """What a module itself states: its attribute ``preprocessing``, or timm's configuration."""
    stated = getattr(model, "preprocessing", None)
    if isinstance(stated, Preprocessing):
        return stated
    configs = (getattr(model, name, None) for name in ("pretrained_cfg", "default_cfg"))
    config = next(filter(_states, configs), None)
    if config is None:
        return None
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return _from_timm(config, {"img_size": size})


def _states(config: Any) -> bool:
    """Whether a configuration of timm states mean and standard deviation."""
    return isinstance(config, Mapping) and bool(config.get("mean") and config.get("std"))


def states_preprocessing(model: nn.Module, arguments: Arguments) -> bool:
    """Whether the model or its arguments state the image size."""
    config = getattr(model, "config", None)
    return (
        stated_by(model) is not None
        or bool(getattr(model, "img_size", None) or getattr(config, "image_size", None))
        or bool({"img_size", "image_size"} & set(arguments))
    )


def _resized(authors: Preprocessing, arguments: Arguments) -> Preprocessing:
    size = arguments.get("img_size", arguments.get("image_size"))
    if size is None or _pair(size) == authors.size:
        return authors
    return replace(authors, size=_pair(size), crop=1.0)


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping):
        stated = {side: length for side, length in size.items() if length}
        height = stated["height"] if "height" in stated else stated["shortest_edge"]
        return height, stated.get("width", height)
    height, width = size
    return height, width
