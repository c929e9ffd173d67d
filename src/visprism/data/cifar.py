"""CIFAR-10 and CIFAR-100, through torchvision."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from visprism.core.errors import InputError
from visprism.data.image_set import DATA, ImageSet, chosen_split


def home() -> Path:
    """The folder of downloads: the variable VISPRISM_HOME, or ~/.cache/visprism."""
    return Path(os.environ.get("VISPRISM_HOME", "~/.cache/visprism")).expanduser()


def _cifar(name: str, split: str | None) -> ImageSet:
    from torchvision import datasets

    split = chosen_split(("train", "test"), split, name)
    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    root = home() / "data"
    try:
        stored = kind(str(root), train=split == "train", download=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{name} is not in {root} and could not be downloaded ({error}). Put its folder "
            f"{kind.base_folder} there."
        ) from error
    return ImageSet(
        source=name,
        split=split,
        class_names=tuple(stored.classes),
        targets=np.array(stored.targets),
        read=lambda indices: [Image.fromarray(stored.data[i]) for i in indices],
    )


@DATA.register
def cifar10(*, split: str | None = None) -> ImageSet:
    """60,000 photographs of 32x32 pixels in ten classes; downloaded (170 MB) where missing."""
    return _cifar("cifar10", split)


@DATA.register
def cifar100(*, split: str | None = None) -> ImageSet:
    """60,000 photographs of 32x32 pixels in a hundred classes; downloaded (169 MB)."""
    return _cifar("cifar100", split)
