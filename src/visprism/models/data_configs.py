"""Data configurations: the preprocessing that models of any library state.

An `img_size` (or `image_size`) that the user gives to the model is the size of its images.
Images of another size than the authors' are not cropped, since the crop applies to that size.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from visprism.core.preprocessing import Preprocessing

_RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # numbers of PIL's filters

Arguments = Mapping[str, Any]


def from_timm(model: nn.Module, arguments: Arguments) -> Preprocessing:
    """The preprocessing of `timm.data.resolve_model_data_config`."""
    from timm.data import resolve_model_data_config

    config: Mapping[str, Any] = resolve_model_data_config(model)
    authors = Preprocessing(
        size=_pair(config["input_size"][1:]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=config["interpolation"],
        crop=config["crop_pct"],
    )
    return _resized(authors, arguments)


def from_torchvision(name: str, arguments: Arguments) -> Preprocessing:
    """The transforms that belong to the default weights of a torchvision model."""
    from torchvision.models import get_model_weights

    (weights,) = {get_model_weights(name)["DEFAULT"]}
    transforms = weights.transforms()
    (crop,), (resized,) = transforms.crop_size, transforms.resize_size
    authors = Preprocessing(
        size=(crop, crop),
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
        interpolation=transforms.interpolation.value,
        crop=crop / resized,
    )
    return _resized(authors, arguments)


def from_image_processor(processor: Mapping[str, Any], arguments: Arguments) -> Preprocessing:
    """The configuration of the image processor of a Hugging Face model."""
    resized = _pair(processor.get("size", 224))
    cropped = processor.get("crop_size") if processor.get("do_center_crop") else None
    size = _pair(cropped) if cropped else resized
    plain = not processor.get("do_normalize", True)
    authors = Preprocessing(
        size=size,
        mean=(0.0,) * 3 if plain else tuple(processor["image_mean"]),
        std=(1.0,) * 3 if plain else tuple(processor["image_std"]),
        interpolation=_RESAMPLING[int(processor.get("resample", 3))],
        crop=processor.get("crop_pct") or min(1.0, size[0] / resized[0]),
    )
    return _resized(authors, arguments)


def from_attributes(
    model: nn.Module, arguments: Arguments, *, default: tuple[int, int] = (224, 224)
) -> Preprocessing:
    """The preprocessing that a model itself states, or its size.

    See `stated_by`; else its attribute ``img_size``, or ``config.image_size`` as in Hugging
    Face; otherwise `default`. Mean and standard deviation are those of ImageNet by default.
    """
    stated = stated_by(model)
    if stated is not None:
        return _resized(stated, arguments)
    config = getattr(model, "config", None)
    size = getattr(model, "img_size", None) or getattr(config, "image_size", None)
    return _resized(Preprocessing(size=_pair(size or default)), arguments)


def stated_by(model: nn.Module) -> Preprocessing | None:
    """What a module itself states: its attribute ``preprocessing``, or timm's configuration."""
    stated = getattr(model, "preprocessing", None)
    if isinstance(stated, Preprocessing):
        return stated
    configs = (getattr(model, name, None) for name in ("pretrained_cfg", "default_cfg"))
    if not any(isinstance(c, Mapping) and c.get("mean") and c.get("std") for c in configs):
        return None
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return from_timm(model, {"img_size": size})


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
