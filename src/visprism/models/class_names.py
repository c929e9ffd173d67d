"""Names of a model's outputs, as its checkpoint, configuration or weights state them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from visprism.core.class_names import CLASS_NAMES, ModelClasses
from visprism.core.errors import InputError

_IMAGENET = 1000


def classes_of(model: nn.Module) -> ModelClasses:
    """The names of a model's outputs; none where nothing states them.

    In this order: the attribute ``class_names``, ``config.id2label`` of Hugging Face, the
    categories of torchvision's weights, and for timm the version of ImageNet that the number of
    classes tells. Names of ImageNet-1k are known by their WordNet identifiers too.
    """
    stated = getattr(model, CLASS_NAMES, None)
    if isinstance(stated, Sequence) and not isinstance(stated, str) and len(stated):
        return ModelClasses(_with_identifiers([str(name) for name in stated]))
    labels = getattr(getattr(model, "config", None), "id2label", None)
    if isinstance(labels, dict) and labels:
        names = [str(labels[key]) for key in sorted(labels, key=int)]
        if not all(name == f"LABEL_{i}" for i, name in enumerate(names)):
            return ModelClasses(_with_identifiers(names))
    config = getattr(model, "pretrained_cfg", None)
    classes = getattr(model, "num_classes", None)
    if config and classes and classes == config.get("num_classes"):
        return ModelClasses(_of_timm(config), stated=False)
    return ModelClasses()


def _of_timm(config: Any) -> list[list[str]]:
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(config)
    if not subset:
        return []
    info = ImageNetInfo(subset)
    return [
        [info.index_to_description(i), identifier]
        for i, identifier in enumerate(info.label_names())
    ]


def _with_identifiers(names: list[str]) -> list[list[str]]:
    """Each name, with its WordNet identifier where these are the classes of ImageNet-1k."""
    if len(names) != _IMAGENET or not names[0].startswith(("tench", "n01440764")):
        return [[name] for name in names]
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    return [
        [name, identifier, info.index_to_description(i)]
        for i, (name, identifier) in enumerate(zip(names, info.label_names(), strict=True))
    ]


def read_class_names(path: Path) -> tuple[str, ...]:
    """The names in a text file, one in each line that is not empty."""
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"classes must be a text file with a name in each line, got {path} ({error})"
        ) from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(
            f"{path} must name at least two classes, each once, got {len(names)} lines and "
            f"{len(set(names))} names"
        )
    return names
