"""Images of a study: one ordered set of images for all models.

Whatever the user has (an image set, a data set, a loader, an iterable of batches) becomes a
`StudyImages`: the same images in the same order in every pass, and every limit selects a part
of what a larger limit selects.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.run import stream
from visprism.data.batches import batches
from visprism.data.crops import CropCache
from visprism.data.fixed_augmentation import fixed_augmentation
from visprism.data.image_set import NO_CLASS, ImageSet
from visprism.data.memory import default_preprocessing

# (8-bit pixels of several images, their indices) -> changed pixels
PixelChange = Callable[[Tensor, Sequence[int]], Tensor]


class StudyImages(ABC):
    """The images of a study, in one order."""

    name: str  # as the user named it
    split: str  # "train", "test", ... or ""

    @abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @property
    @abstractmethod
    def targets(self) -> Int64[np.ndarray, " n"] | None:
        """Class index of each image; None without labels."""

    @property
    def without_labels(self) -> str:
        """Why there are no targets; empty where the data simply has none."""
        return ""

    @property
    @abstractmethod
    def positions(self) -> Int64[np.ndarray, " n"]:
        """Index of each image in the data that the user passed."""

    @property
    def num_classes(self) -> int | None:
        """Number of classes where the data declares it."""
        return None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty where there are none."""
        return ()

    @property
    def textures(self) -> Int64[np.ndarray, " n"] | None:
        """Class of each image's texture where it differs from that of its shape."""
        return None

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that could not be read and were left out, with the reason."""
        return ()

    @abstractmethod
    def preprocessing(self, stated: Preprocessing | None) -> Preprocessing | None:
        """The preprocessing for a model that states `stated`, or none."""

    @abstractmethod
    def batches(
        self,
        preprocessing: Preprocessing | None,
        *,
        batch_size: int,
        limit: int | None = None,
        change: PixelChange | None = None,
    ) -> Sequence:
        """Batches of (images, targets), or of images without labels; the same in every pass."""

    @abstractmethod
    def pixels(
        self, preprocessing: Preprocessing | None, start: int, stop: int
    ) -> UInt8[Tensor, "b c h w"]:
        """Pixels of some of the images in eight bits, cropped but not normalized."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of names, order and targets, and for tensors of the pixels."""


@dataclass(frozen=True)
class PictureImages(StudyImages):
    """Images that are decoded when needed, with the preprocessing of each model.

    Up to 512 MiB of crops stay in memory, so that all analyses and models share them.
    """

    image_set: ImageSet
    _cache: CropCache = field(default_factory=CropCache, repr=False, compare=False)

    @property
    def name(self) -> str:  # pyrefly: ignore
        """As the user named the data."""
        return self.image_set.source

    @property
    def split(self) -> str:  # pyrefly: ignore
        """The split that was read."""
        return self.image_set.split

    def __len__(self) -> int:
        return len(self.image_set)

    @property
    def targets(self) -> Int64[np.ndarray, " n"] | None:
        """Class index of each image; None without labels."""
        values = self.image_set.targets
        return None if len(values) and values.min() == NO_CLASS else values

    @property
    def positions(self) -> Int64[np.ndarray, " n"]:
        """Index of each image in the data set; that of a file in the sorted folder."""
        positions = self.image_set.positions
        return np.arange(len(self)) if positions is None else positions

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the data set."""
        return self.image_set.num_classes or None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.image_set.class_names

    @property
    def textures(self) -> Int64[np.ndarray, " n"] | None:
        """Class of each image's texture where it differs from that of its shape."""
        return self.image_set.textures

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that could not be read and were left out, with the reason."""
        return self.image_set.skipped

    def preprocessing(self, stated: Preprocessing | None) -> Preprocessing:
        """That of the model, or the size of the first image and the data's mean and std."""
        if stated is not None:
            return stated
        picture, _ = self.image_set[0]
        return default_preprocessing(self.image_set, (picture.height, picture.width))

    def batches(
        self,
        preprocessing: Preprocessing | None,
        *,
        batch_size: int,
        limit: int | None = None,
        change: PixelChange | None = None,
    ) -> Sequence:
        """Batches of (images, targets); the next one is prepared in a thread."""
        image_set = self.image_set
        if limit is not None and limit < len(image_set):
            image_set = image_set.subset(np.arange(limit))
        crops = self._cache.of(self.image_set, required(preprocessing))
        options = {} if change is None else {"change": change}
        return batches(image_set, required(preprocessing), batch_size, crops=crops, **options)

    def fixed_augmentation(
        self,
        preprocessing: Preprocessing,
        *,
        batch_size: int,
        num_classes: int,
        seed: int,
        limit: int | None = None,
    ) -> Sequence:
        """Augmented batches with soft targets; see `fixed_augmentation`."""
        image_set = self.image_set
        if limit is not None and limit < len(image_set):
            image_set = image_set.subset(np.arange(limit))
        return fixed_augmentation(image_set, preprocessing, batch_size, num_classes, seed=seed)

    def pixels(
        self, preprocessing: Preprocessing | None, start: int, stop: int
    ) -> UInt8[Tensor, "b c h w"]:
        """Pixels of some of the images in eight bits, cropped but not normalized."""
        crops = self._cache.of(self.image_set, required(preprocessing))
        return crops(range(start, min(stop, len(self))))

    def fingerprint(self) -> str:
        """A digest of the source, the split, and the targets in order."""
        head = f"{self.image_set.source}|{self.image_set.split}|{len(self)}|".encode()
        return blake2b(head + self.image_set.targets.tobytes(), digest_size=16).hexdigest()


def ordered(image_set: ImageSet, *, seed: int = 0, limit: int | None = None) -> PictureImages:
    """The image set in the order of `nested_order`, with at most `limit` images."""
    return PictureImages(image_set.subset(nested_order(image_set.targets, seed=seed)[:limit]))


def nested_order(targets: Int64[np.ndarray, " n"], *, seed: int = 0) -> Int64[np.ndarray, " n"]:
    """Indices in a random order whose every prefix is balanced over classes.

    Data is often sorted by class; analyses that compare the images of a batch need several
    classes in it, and a smaller number of images must be a part of a larger one.
    """
    generator = stream(seed, "order of images")
    order = torch.randperm(len(targets), generator=generator).numpy()
    labels = targets[order]
    by_class = order[np.argsort(labels, kind="stable")]
    _, first, count = np.unique(
        labels[np.argsort(labels, kind="stable")], return_index=True, return_counts=True
    )
    turn = np.arange(len(order)) - np.repeat(first, count)  # 0 for the first of each class
    shuffle = torch.rand(len(order), generator=generator).numpy()
    return by_class[np.lexsort((shuffle, turn))]


def required(preprocessing: Preprocessing | None) -> Preprocessing:
    """The preprocessing, for operations that change pixels."""
    if preprocessing is None:
        raise InputError(
            "preprocessing must be given where pixels are changed: the mean and standard "
            "deviation that the images were normalized with"
        )
    return preprocessing
