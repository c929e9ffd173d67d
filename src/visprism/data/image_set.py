"""Image sets: labeled images that are decoded when they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int, Int64
from PIL import Image

from visprism.core.errors import InputError
from visprism.core.registry import Registry
from visprism.core.run import stream

DATA = Registry("data")


# In the order of preference where none is named: measurements use images that a model has not
# been trained on.
SPLITS = ("test", "val", "validation", "valid", "dev", "train")

NO_CLASS = -1  # the target of an image that has no label


def no_fault(position: int) -> None:
    """No fault, for images in memory."""


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes; ``image_set[i]`` is an RGB image and its class index."""

    source: str  # as the user named it
    split: str  # empty where the data has none
    class_names: tuple[str, ...]  # empty where images have no labels
    targets: Int64[np.ndarray, " n"] = field(repr=False)  # class indices, or all NO_CLASS
    # RGB images by index; many at once, because some sources are faster that way.
    read: Callable[[Sequence[int]], list[Image.Image]] = field(repr=False)
    # Why the file of an image cannot be read, without decoding all of it; None if it can.
    fault: Callable[[int], str | None] = field(default=no_fault, repr=False)
    skipped: tuple[str, ...] = field(
        default=(), repr=False
    )  # the faults of images that were left out
    # The class of the texture, of images whose shape is of another class.
    textures: Int64[np.ndarray, " n"] | None = field(default=None, repr=False)
    framed: bool = False  # cropped already, so that no center crop follows
    # The classes that the data has images of, where these are defined to be a part; empty: all.
    class_subset: tuple[int, ...] = ()
    # The index of each image in the data that this is a subset of; None: these are all of it.
    positions: Int64[np.ndarray, " n"] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position: int) -> tuple[Image.Image, int]:
        """An RGB image and its class index."""
        target = int(self.targets[position])  # first, as it raises an IndexError
        (image,) = self.read([range(len(self))[position]])
        return image, target

    @property
    def name(self) -> str:
        """Source, split and number of unreadable images, for the provenance."""
        split = f" ({self.split})" if self.split else ""
        skipped = f", {len(self.skipped)} unreadable left out" if self.skipped else ""
        return f"{self.source}{split}{skipped}"

    @property
    def num_classes(self) -> int:
        """Number of classes, with those that have no image."""
        return len(self.class_names)

    def subset(self, positions: Int[np.ndarray, " m"]) -> "ImageSet":
        """The image set with only the images at `positions`, in that order."""
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise InputError(
                f"positions must be between 0 and {len(self) - 1}, got {positions.min()} to "
                f"{positions.max()}"
            )
        chosen = positions.tolist()
        before = np.arange(len(self)) if self.positions is None else self.positions
        return replace(
            self,
            positions=before[positions],
            targets=self.targets[positions],
            read=lambda indices: self.read([chosen[i] for i in indices]),
            fault=lambda i: self.fault(chosen[i]),
            textures=None if self.textures is None else self.textures[positions],
        )


def balanced(
    targets: Int64[np.ndarray, " n"], limit: int, *, seed: int = 0
) -> Int64[np.ndarray, " m"]:
    """Indices of at most `limit` images, balanced over the classes, in ascending order.

    Images are selected at random from each class. With one seed, a smaller limit selects a
    subset of what a larger limit selects.
    """
    generator = stream(seed, "balanced")
    order = torch.randperm(len(targets), generator=generator).numpy()
    order = order[np.argsort(targets[order], kind="stable")]  # by class, shuffled within
    classes, first, count = np.unique(targets[order], return_index=True, return_counts=True)
    turn = np.arange(len(order)) - np.repeat(first, count)  # 0 for the first of each class
    # Where the limit is no multiple of the classes, those with one image more are random too.
    precedence = torch.randperm(len(classes), generator=generator).numpy()
    return np.sort(order[np.lexsort((np.repeat(precedence, count), turn))[:limit]])


class NoSplitsError(InputError):
    """A split was named of data without splits."""


def chosen_split(available: Sequence[str], wanted: str | None, name: str) -> str:
    """The split `wanted`, or the first of `SPLITS` that is available."""
    if wanted is None:
        wanted = next((split for split in SPLITS if split in available), None)
        if wanted is None:
            raise InputError(f"{name} has the splits {', '.join(available)}. Select one.")
    elif wanted not in available:
        if not available:
            raise NoSplitsError(f"split must be None for {name}, got {wanted!r}")
        names = ", ".join(available)
        raise InputError(f"split of {name} must be one of {names}, got {wanted!r}")
    return wanted
