"""Image sets: labeled images that are decoded when they are asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int, Int64
from PIL import Image

from visprism.core.errors import InputError
from visprism.core.rng import stream

# In the order in which one is taken where the user names none: measurements are made on images
# that a model has not been trained on.
SPLITS = ("test", "val", "validation", "valid", "dev", "train")

NO_CLASS = -1  # the target of an image that has no label


def no_fault(position: int) -> None:
    """The fault of an image that cannot have one, as it is in memory already."""


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes; ``image_set[i]`` is an RGB image and its class index."""

    source: str  # as the user named it
    split: str  # empty where the data has none
    class_names: tuple[str, ...]  # empty where images have no labels
    targets: Int64[np.ndarray, " n"] = field(repr=False)  # class indices, or all NO_CLASS
    # RGB images by position, many at once because some sources are faster so.
    read: Callable[[Sequence[int]], list[Image.Image]] = field(repr=False)
    # What is wrong with an image's file, found without fully decoding it.
    fault: Callable[[int], str | None] = field(default=no_fault, repr=False)
    skipped: tuple[str, ...] = field(default=(), repr=False)  # the faults of what was left out
    # Of images whose shape is of one class and whose texture of another, that other class.
    textures: Int64[np.ndarray, " n"] | None = field(default=None, repr=False)
    framed: bool = False  # cropped to a model's frame already, so that no border is cut off

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Image.Image, int]:
        """An RGB image and its class index."""
        target = int(self.targets[position])  # first, as it says where there is no such image
        (image,) = self.read([range(len(self))[position]])
        return image, target

    @property
    def name(self) -> str:
        """One phrase for the line of protocol under a figure."""
        split = f" ({self.split})" if self.split else ""
        skipped = f", {len(self.skipped)} unreadable left out" if self.skipped else ""
        return f"{self.source}{split}{skipped}"

    @property
    def num_classes(self) -> int:
        """Number of classes, those that no image shows included."""
        return len(self.class_names)

    def subset(self, positions: Int[np.ndarray, " m"]) -> "ImageSet":
        """The image set with only the images at `positions`, in that order."""
        chosen = positions.tolist()
        return replace(
            self,
            targets=self.targets[positions],
            read=lambda some: self.read([chosen[i] for i in some]),
            fault=lambda i: self.fault(chosen[i]),
            textures=None if self.textures is None else self.textures[positions],
        )


def balanced(
    targets: Int64[np.ndarray, " n"], limit: int, *, seed: int = 0
) -> Int64[np.ndarray, " m"]:
    """TokenPositions of at most `limit` images: as many of each class as there can be, in order.

    Image folders are sorted by class: their first 64 images are 64 of class 0. These are drawn
    at random from each class. A smaller limit selects a part of what a larger one selects.
    """
    generator = stream(seed, "balanced")
    order = torch.randperm(len(targets), generator=generator).numpy()
    order = order[np.argsort(targets[order], kind="stable")]  # by class, shuffled within
    classes, first, count = np.unique(targets[order], return_index=True, return_counts=True)
    turn = np.arange(len(order)) - np.repeat(first, count)  # 0 for the first of each class
    # Where the limit leaves a rest, the classes that get one image more are random too.
    precedence = torch.randperm(len(classes), generator=generator).numpy()
    return np.sort(order[np.lexsort((np.repeat(precedence, count), turn))[:limit]])


class NoSplitsError(InputError):
    """A split of data that has none."""


def chosen_split(available: Sequence[str], wanted: str | None, name: str) -> str:
    """The split that the user wants, or the first of `SPLITS` that there is.

    Raises:
        InputError: if there is none such.
    """
    if wanted is None:
        wanted = next((split for split in SPLITS if split in available), None)
        if wanted is None:
            raise InputError(f"{name} has the splits {', '.join(available)}; choose one")
    elif wanted not in available:
        if not available:
            raise NoSplitsError(f"{name} has no split {wanted!r}; it has no splits")
        there = ", ".join(available)
        raise InputError(f"{name} has no split {wanted!r}; it has {there}")
    return wanted
