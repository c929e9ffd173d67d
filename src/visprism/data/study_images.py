"""Images of a study: one ordered set of images, given to every model as it needs them.

Whatever the user has (an image set, a data set, a loader, an iterable of batches) becomes a
`StudyImages`: the same images in the same order in every pass, and every limit selects a part
of what a larger limit selects.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.rng import stream
from visprism.data.batches import batches
from visprism.data.fixed_augmentation import fixed_augmentation
from visprism.data.image_set import NO_CLASS, ImageSet
from visprism.data.memory import default_preprocessing

# (eight-bit pixels of several images, their indices) -> the pixels that the model sees instead
PixelChange = Callable[[Tensor, Sequence[int]], Tensor]

_MOST_BYTES = 4 * 2**30  # of a user's batches that are kept in memory


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
        """How a model that states `stated`, or nothing, is given these images."""

    @abstractmethod
    def batches(
        self,
        preprocessing: Preprocessing | None,
        *,
        batch_size: int,
        limit: int | None = None,
        change: PixelChange | None = None,
    ) -> Sequence:
        """Batches of (images, targets), or of images without labels; the same in every pass.

        Raises:
            InputError: if pixels are to be changed and there is no preprocessing.
        """

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
    """Images that are decoded when they are needed, prepared as each model's authors did it."""

    image_set: ImageSet

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
        options = {} if change is None else {"change": change}
        return batches(image_set, _required(preprocessing), batch_size, **options)

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
        from visprism.data.memory import in_memory

        image_set = self.image_set.subset(np.arange(start, min(stop, len(self))))
        return in_memory(image_set, _required(preprocessing))[0]

    def fingerprint(self) -> str:
        """A digest of the source, the split, and the targets in order."""
        head = f"{self.image_set.source}|{self.image_set.split}|{len(self)}|".encode()
        return blake2b(head + self.image_set.targets.tobytes(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class TensorImages(StudyImages):
    """Batches that a user prepared, kept in memory; every model is given the same tensors."""

    images: Any  # Tensor (n, c, h, w), or a mapping of tensors for models with several inputs
    labels: Tensor | None
    name: str = "user's batches"  # pyrefly: ignore (an attribute may be a field or computed)
    split: str = ""  # pyrefly: ignore
    classes: int | None = None
    mean_std: Preprocessing | None = None  # that the tensors were normalized with

    def __len__(self) -> int:
        return len(_first(self.images))

    @property
    def targets(self) -> Int64[np.ndarray, " n"] | None:
        """Class index of each image; None without labels."""
        return None if self.labels is None else self.labels.numpy()

    @property
    def num_classes(self) -> int | None:
        """Number of classes where the user gave it."""
        return self.classes

    def preprocessing(self, stated: Preprocessing | None) -> Preprocessing | None:
        """The normalization that the tensors have, in their own size; None if unknown."""
        tensor = _first(self.images)
        way = self.mean_std or stated
        if way is None or tensor.ndim != 4 or len(way.mean) != tensor.shape[1]:
            return None
        return replace(way, size=(tensor.shape[2], tensor.shape[3]), crop=1.0)

    def batches(
        self,
        preprocessing: Preprocessing | None,
        *,
        batch_size: int,
        limit: int | None = None,
        change: PixelChange | None = None,
    ) -> "TensorBatches":
        """Views of the tensors in memory."""
        number = len(self) if limit is None else min(limit, len(self))
        way = None if change is None else _required(preprocessing)
        return TensorBatches(self.images, self.labels, batch_size, number, change, way)

    def pixels(
        self, preprocessing: Preprocessing | None, start: int, stop: int
    ) -> UInt8[Tensor, "b c h w"]:
        """Pixels in eight bits, recovered from the normalized tensors."""
        return to_pixels(self.images[start:stop], _required(preprocessing))

    def fingerprint(self) -> str:
        """A digest of pixels and targets."""
        digest = blake2b(digest_size=16)
        parts = self.images.values() if isinstance(self.images, Mapping) else [self.images]
        for tensor in (*parts, *([] if self.labels is None else [self.labels])):
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class TensorBatches(Sequence):
    """Batches of tensors in memory; a slice of it is a part of the batches."""

    images: Any
    labels: Tensor | None
    batch_size: int
    number: int  # of images
    change: PixelChange | None = None
    preprocessing: Preprocessing | None = None
    batches: range | None = None  # numbers of the batches; None: all

    @property
    def numbers(self) -> range:
        """Numbers of the batches, 0 for the first of all."""
        return (
            range(-(-self.number // self.batch_size)) if self.batches is None else self.batches
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 (a batch, or some)
        """One batch, images or (images, targets); of a slice the batches."""
        if isinstance(index, slice):
            return replace(self, batches=self.numbers[index])
        start = self.numbers[index] * self.batch_size
        rows = slice(start, min(start + self.batch_size, self.number))
        images = _rows(self.images, rows)
        if self.change is not None:
            way = _required(self.preprocessing)
            changed = self.change(to_pixels(images, way), range(rows.start, rows.stop))
            images = from_pixels(changed, way).to(images.dtype)
        return images if self.labels is None else (images, self.labels[rows])

    def __iter__(self) -> Iterator:
        return (self[i] for i in range(len(self)))


def tensor_images(
    data: Iterable,
    *,
    name: str = "user's batches",
    split: str = "",
    limit: int | None = None,
    num_classes: int | None = None,
    preprocessing: Preprocessing | None = None,
) -> TensorImages:
    """The batches of a loader or another iterable, read once and kept in memory.

    Reading once makes every pass see the same images, also where a loader shuffles.

    Args:
        data: batches of images (B, C, H, W), of mappings of tensors, or of (images, targets).
        name: for provenance.
        split: "train", "test", ... where it is known.
        limit: read at most this number of images.
        num_classes: number of classes, where it is known.
        preprocessing: the normalization that the images have, where it is known.

    Raises:
        InputError: if there are no images, batches differ in form or size, or they need more
            than 4 GiB.
    """
    images: list[Any] = []
    targets: list[Tensor] = []
    number = size = 0
    for batch in data:
        pictures, labels = _parted(batch)
        taken = len(_first(pictures))
        if limit is not None and number + taken > limit:
            taken = limit - number
            pictures = _rows(pictures, slice(0, taken))
            labels = None if labels is None else labels[:taken]
        if images and _form(pictures) != _form(images[0]):
            raise InputError(
                f"all batches must hold images of one size, got {_form(pictures)} after "
                f"{_form(images[0])}"
            )
        if images and (labels is None) != (not targets):
            raise InputError("either all batches or none must have targets")
        images.append(pictures)
        targets += [] if labels is None else [labels]
        number += taken
        size += sum(t.numel() * t.element_size() for t in _tensors(pictures))
        if size > _MOST_BYTES:
            raise InputError(
                f"data must fit into {_MOST_BYTES // 2**30} GiB of memory as tensors; the "
                f"first {number} images need more. Pass a limit, an ImageSet or a Dataset of "
                "images."
            )
        if limit is not None and number >= limit:
            break
    if not number:
        raise InputError("data must give at least one image, got none")
    together = (
        {key: torch.cat([p[key] for p in images]) for key in images[0]}
        if isinstance(images[0], Mapping)
        else torch.cat(images)
    )
    labels = torch.cat(targets) if targets else None
    return TensorImages(together, labels, name, split, num_classes, preprocessing)


def ordered(image_set: ImageSet, *, seed: int = 0, limit: int | None = None) -> PictureImages:
    """The image set in an order of which every first part has as many images of each class.

    Data is often sorted by class; analyses that compare the images of a batch need several
    classes in it, and a smaller number of images must be a part of a larger one.
    """
    generator = stream(seed, "order of images")
    order = torch.randperm(len(image_set), generator=generator).numpy()
    labels = image_set.targets[order]
    by_class = order[np.argsort(labels, kind="stable")]
    _, first, count = np.unique(
        labels[np.argsort(labels, kind="stable")], return_index=True, return_counts=True
    )
    turn = np.arange(len(order)) - np.repeat(first, count)  # 0 for the first of each class
    shuffle = torch.rand(len(order), generator=generator).numpy()
    nested = by_class[np.lexsort((shuffle, turn))]
    return PictureImages(image_set.subset(nested[:limit]))


def to_pixels(images: Tensor, preprocessing: Preprocessing) -> UInt8[Tensor, "b c h w"]:
    """Pixels 0 ... 255 from normalized images; exact where they came from eight bits."""
    mean, std = _statistics(preprocessing, images)
    return (images * std + mean).mul(255).round().clamp(0, 255).to(torch.uint8)


def from_pixels(pixels: UInt8[Tensor, "b c h w"], preprocessing: Preprocessing) -> Tensor:
    """Normalized images from pixels 0 ... 255."""
    mean, std = _statistics(preprocessing, pixels)
    return pixels.float().div(255).sub(mean).div(std)


def _statistics(preprocessing: Preprocessing, like: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = (
        torch.tensor(v, device=like.device)[:, None, None]
        for v in (preprocessing.mean, preprocessing.std)
    )
    return mean, std


def _required(preprocessing: Preprocessing | None) -> Preprocessing:
    if preprocessing is None:
        raise InputError(
            "preprocessing must be given where pixels are changed: the mean and standard "
            "deviation that the images were normalized with"
        )
    return preprocessing


def _parted(batch: Any) -> tuple[Any, Tensor | None]:  # noqa: ANN401 (what a user's loader gives)
    if isinstance(batch, tuple | list):
        if len(batch) != 2:
            raise InputError(
                f"a batch must be images or (images, targets), got {len(batch)} parts"
            )
        images, targets = batch
        labels = torch.as_tensor(targets)
        if labels.ndim != 1 or labels.is_floating_point() or len(labels) != len(_first(images)):
            raise InputError(
                "targets must be one class index per image "
                f"({len(_first(images))}), got shape {tuple(labels.shape)} of "
                f"type {str(labels.dtype).removeprefix('torch.')}"
            )
        return images, labels.long().cpu()
    return batch, None


def _tensors(images: Any) -> list[Tensor]:  # noqa: ANN401
    return list(images.values()) if isinstance(images, Mapping) else [images]


def _first(images: Any) -> Tensor:  # noqa: ANN401
    tensors = _tensors(images)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise InputError(
            f"a batch must be tensors, got {type(images).__name__}; a Dataset of PIL images is "
            "passed as it is, without a DataLoader"
        )
    return tensors[0]


def _rows(images: Any, rows: slice) -> Any:  # noqa: ANN401
    if isinstance(images, Mapping):
        return {key: tensor[rows] for key, tensor in images.items()}
    return images[rows]


def _form(images: Any) -> str:  # noqa: ANN401
    return ", ".join("x".join(map(str, t.shape[1:])) for t in _tensors(images))
