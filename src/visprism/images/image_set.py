"""Image sets: labeled images that are decoded when they are read, and parts of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from PIL import Image

from visprism.core.errors import InputError
from visprism.core.registry import Registry
from visprism.core.run import Progress, stream

DATA = Registry("data", "visprism.images")

# In the order of preference where none is named: measurements use images that a model has not
# been trained on.
SPLITS = ("test", "val", "validation", "valid", "dev", "train")

_SPLIT_NAMES = {"training": "train", "testing": "test", "evaluation": "val", "eval": "val"}

NO_CLASS = -1  # the target of an image that has no label

_READ = 256  # images at a time


def no_fault(position: int) -> None:
    """No fault, for images in memory."""


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes; ``image_set[i]`` is an RGB image and its class index."""

    source: str  # as the user named it
    split: str  # empty where the data has none
    class_names: tuple[str, ...]  # empty where the data names no classes
    targets: Int64[np.ndarray, " n"] = field(repr=False)  # class indices, or all NO_CLASS
    # RGB images by index; many at once, because some sources are faster that way.
    read: Callable[[Sequence[int]], list[Image.Image]] = field(repr=False)
    # Why the file of an image cannot be read, without decoding all of it; None if it can.
    fault: Callable[[int], str | None] = field(default=no_fault, repr=False)
    skipped: tuple[str, ...] = field(default=(), repr=False)  # faults of omitted images
    # The class of the texture, of images whose shape is of another class.
    textures: Int64[np.ndarray, " n"] | None = field(default=None, repr=False)
    framed: bool = False  # cropped already, so that no center crop follows
    # The classes that the data has images of, where these are defined to be a part; empty: all.
    class_subset: tuple[int, ...] = ()
    # The index of each image in the data that this is a subset of; None: these are all of it.
    positions: Int64[np.ndarray, " n"] | None = field(default=None, repr=False)
    # All images, of which these are a part; None: these are all of them.
    whole: "ImageSet | None" = field(default=None, repr=False)
    # Targets that are no classes: numbers of each image, or the mask of an image.
    numbers: Float[np.ndarray, "n k"] | None = field(default=None, repr=False)
    mask_of: Callable[[int], Image.Image] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()  # how the images were read, where it could be otherwise
    # Bytes of the file of each image, where there is one; part of the fingerprint.
    size_of: Callable[[int], int] | None = field(default=None, repr=False)

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
        """Number of classes that are named, or up to the highest that has an image."""
        return len(self.class_names) or int(self.targets.max(initial=NO_CLASS)) + 1

    def subset(self, positions: Int[np.ndarray, " m"]) -> "ImageSet":
        """The image set with only the images at `positions`, in that order."""
        chosen = positions.tolist()
        before = np.arange(len(self)) if self.positions is None else self.positions
        size_of, mask_of = self.size_of, self.mask_of
        return replace(
            self,
            size_of=None if size_of is None else lambda i: size_of(chosen[i]),
            positions=before[positions],
            whole=self.whole or self,
            targets=self.targets[positions],
            read=lambda indices: self.read([chosen[i] for i in indices]),
            fault=lambda i: self.fault(chosen[i]),
            textures=None if self.textures is None else self.textures[positions],
            numbers=None if self.numbers is None else self.numbers[positions],
            mask_of=None if mask_of is None else lambda i: mask_of(chosen[i]),
        )


def nested_order(targets: Int64[np.ndarray, " n"], *, seed: int = 0) -> Int64[np.ndarray, " n"]:
    """Indices in a random order whose every prefix has the class frequencies of the data.

    The j-th of the n images of a class, j = 0 ... n - 1 at random, has the place (j + u) / n
    with u uniform in [0, 1), so that a fraction f of all images holds n f images of the class,
    rounded up or down. The prefixes are a stratified sample: accuracy, NLL and ECE estimate
    the values of all images. A smaller number of images is a part of a larger one.
    """
    generator = stream(seed, "order of images")
    order = torch.randperm(len(targets), generator=generator).numpy()
    order = order[np.argsort(targets[order], kind="stable")]
    _, first, count = np.unique(targets[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    within = torch.rand(len(order), generator=generator, dtype=torch.float64).numpy()
    return order[np.argsort((rank + within) / np.repeat(count, count), kind="stable")]


def sample(
    targets: Int64[np.ndarray, " n"], limit: int | None, *, seed: int = 0
) -> Int64[np.ndarray, " m"]:
    """The first `limit` indices of `nested_order`; all of them without a limit."""
    if limit is not None and limit < 1:
        raise InputError(f"limit must be positive, got {limit}")
    return nested_order(targets, seed=seed)[:limit]


def stratified(image_set: ImageSet, fraction: float, *, seed: int = 0) -> ImageSet:
    """The same fraction of the images of every class, selected at random, in their order.

    From a class with n images, `fraction` n are selected, rounded, and at least one. With one
    seed, a smaller fraction is a subset of a larger one.
    """
    return image_set.subset(_fraction(image_set, fraction, seed))


def held_out(
    image_set: ImageSet, fraction: float, *, seed: int = 0
) -> tuple[ImageSet, ImageSet]:
    """The training images, and a fraction of every class for validation."""
    chosen = _fraction(image_set, fraction, seed)
    training = np.setdiff1d(np.arange(len(image_set)), chosen)
    targets = image_set.targets
    empty = np.setdiff1d(targets, targets[training])
    if len(empty):
        raise InputError(
            "fraction must leave a training image in every class, got "
            f"{fraction}, which leaves none in {len(empty)} of {len(np.unique(targets))} "
            "classes. Use a smaller fraction or more images."
        )
    return image_set.subset(training), image_set.subset(chosen)


def _fraction(image_set: ImageSet, fraction: float, seed: int) -> Int[np.ndarray, " m"]:
    if not 0 < fraction <= 1:
        raise InputError(f"fraction must be in (0, 1], got {fraction}")
    targets = image_set.targets
    selected = [np.arange(0)]
    for target in np.unique(targets):
        positions = np.flatnonzero(targets == target)
        generator = stream(seed, "stratified", int(target))
        order = torch.randperm(len(positions), generator=generator).numpy()
        selected.append(positions[order[: max(1, round(fraction * len(positions)))]])
    return np.sort(np.concatenate(selected))


def statistics(
    image_set: ImageSet, *, progress: Progress | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all pixels of all images, in [0, 1].

    Computed from sums of integers, so that the result is exact in any order of the images.
    Every pixel has the same weight, so that a large image weighs more than a small one. Costs
    one pass over the images, and the memory of 256 of them.
    """
    counts = np.zeros((3, 256), np.int64)
    starts = range(0, len(image_set), _READ)
    for start in progress(starts, "channel statistics") if progress else starts:
        for picture in image_set.read(range(start, min(start + _READ, len(image_set)))):
            pixels = np.asarray(picture).reshape(-1, 3)
            for channel in range(3):
                counts[channel] += np.bincount(pixels[:, channel], minlength=256)
    values = np.arange(256)
    number = int(counts[0].sum())
    total, squares = ([int(s) for s in counts @ powers] for powers in (values, values**2))
    # n sum x² - (sum x)² is an integer, so that small values lose no digits.
    spread = (number * q - s * s for s, q in zip(total, squares, strict=True))
    mean = tuple(s / (255 * number) for s in total)
    return mean, tuple(value**0.5 / (255 * number) for value in spread)


def split_name(folder: str) -> str:
    """The split that a folder, or file, is named after; empty if none.

    Example:
        >>> [split_name(name) for name in ("Training", "test_set", "val-images", "cats")]
        ['train', 'test', 'val', '']
    """
    word = re.sub(r"[^a-z]|(set|data|images|imgs)$", "", folder.lower())
    word = _SPLIT_NAMES.get(word, word)
    return word if word in SPLITS else ""


class MissingSplitError(InputError):
    """A split was named that the data does not have."""


class NoSplitsError(MissingSplitError):
    """A split was named of data without splits."""


def chosen_split(available: Sequence[str], wanted: str | None, name: str) -> str:
    """The split `wanted`, or the first of `SPLITS` that is available."""
    names = ", ".join(available)
    if wanted is None:
        wanted = next((split for split in SPLITS if split in available), None)
        if wanted is None:
            raise InputError(f"{name} has the splits {names}. Select one.")
    elif wanted not in available:
        if split_name(wanted) in available:
            return split_name(wanted)
        if not available:
            raise NoSplitsError(f"split must be None for {name}, got {wanted!r}")
        raise MissingSplitError(f"split of {name} must be one of {names}, got {wanted!r}")
    return wanted
