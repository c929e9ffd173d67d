"""Images of a study from batches of tensors, held in memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.data.batches import prepared_ahead
from visprism.data.image_set import NO_CLASS
from visprism.data.study_images import PixelChange, StudyImages, nested_order, required

_LABELS = ("labels", "label", "targets", "target")  # keys of a mapping
_MOST_BYTES = 4 * 2**30  # of batches in memory


@dataclass(frozen=True, eq=False)
class TensorImages(StudyImages):
    """Batches of tensors in memory; every model receives the same tensors."""

    images: Any  # Tensor (n, c, h, w), or a mapping of tensors for models with several inputs
    labels: Tensor | None
    name: str = "the given images"  # pyrefly: ignore (an attribute may be a field or computed)
    split: str = ""  # pyrefly: ignore
    classes: int | None = None
    mean_std: Preprocessing | None = None  # that the tensors were normalized with
    order: Int64[np.ndarray, " n"] | None = None  # index of each image as it was read
    without_labels: str = ""  # why there are none, where the data has other targets

    def __len__(self) -> int:
        return len(_first(self.images))

    @property
    def targets(self) -> Int64[np.ndarray, " n"] | None:
        """Class index of each image; None without labels."""
        return None if self.labels is None else self.labels.numpy()

    @property
    def positions(self) -> Int64[np.ndarray, " n"]:
        """Index of each image in the order in which the data gave them."""
        return np.arange(len(self)) if self.order is None else self.order

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image, (C, H, W) unless the model takes something else."""
        return tuple(_first(self.images).shape[1:])

    @property
    def num_classes(self) -> int | None:
        """Number of classes where the user gave it."""
        return self.classes

    def preprocessing(self, stated: Preprocessing | None) -> Preprocessing | None:
        """The normalization that the tensors have, in their own size; None if unknown."""
        tensor = _first(self.images)
        stats = self.mean_std or stated
        if stats is None or tensor.ndim != 4 or len(stats.mean) != tensor.shape[1]:
            return None
        return replace(stats, size=(tensor.shape[2], tensor.shape[3]), crop=1.0)

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
        stats = None if change is None else required(preprocessing)
        return TensorBatches(self.images, self.labels, batch_size, number, change, stats)

    def pixels(
        self, preprocessing: Preprocessing | None, start: int, stop: int
    ) -> UInt8[Tensor, "b c h w"]:
        """Pixels in eight bits, recovered from the normalized tensors."""
        return to_pixels(self.images[start:stop], required(preprocessing))

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
    """Batches of tensors in memory; a slice of it is a part of the batches.

    Where pixels are changed, the next batch is prepared while one is used.
    """

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

    def __getitem__(self, index: int | slice) -> Any:
        """One batch, images or (images, targets); of a slice the batches."""
        if isinstance(index, slice):
            return replace(self, batches=self.numbers[index])
        start = self.numbers[index] * self.batch_size
        rows = slice(start, min(start + self.batch_size, self.number))
        images = _rows(self.images, rows)
        if self.change is not None:
            stats = required(self.preprocessing)
            changed = self.change(to_pixels(images, stats), range(rows.start, rows.stop))
            images = from_pixels(changed, stats).to(images.dtype)
        return images if self.labels is None else (images, self.labels[rows])

    def __iter__(self) -> Iterator:
        if self.change is None:
            return (self[i] for i in range(len(self)))
        return prepared_ahead(self.__getitem__, range(len(self)))


def tensor_images(
    data: Iterable,
    *,
    name: str = "the given images",
    split: str = "",
    limit: int | None = None,
    num_classes: int | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int | None = None,
) -> TensorImages:
    """The batches of a loader or another iterable, read once and kept in memory.

    Reading once makes every pass see the same images, also where a loader shuffles.

    Args:
        data: batches of images (B, C, H, W), of mappings of tensors, or of (images, targets).
            A mapping of one image tensor and labels, as of Hugging Face, is (images, targets).
            Targets other than one class index per image, such as masks, are left out;
            `TensorImages.without_labels` says so.
        name: for provenance.
        split: "train", "test", ... where it is known.
        limit: read at most this number of images.
        num_classes: number of classes, where it is known.
        preprocessing: the normalization that the images have, where it is known.
        seed: of a random order whose every prefix is balanced over classes; see
            `nested_order`. None: as read.
    """
    if isinstance(data, Tensor) or (
        isinstance(data, tuple) and all(isinstance(part, Tensor) for part in data)
    ):
        raise InputError(
            "data must be an iterable of batches, got one batch of tensors. Pass it in a list."
        )
    images: list[Any] = []
    targets: list[Tensor] = []
    number = size = 0
    reason = ""
    for batch in _to_the_end(data):
        pictures, given = _split_batch(batch)
        labels, fault = _class_indices(given, len(_first(pictures)))
        reason = reason or fault
        taken = len(_first(pictures))
        if limit is not None and number + taken > limit:
            taken = limit - number
            pictures = _rows(pictures, slice(0, taken))
            labels = None if labels is None else labels[:taken]
        if images and _shapes_text(pictures) != _shapes_text(images[0]):
            raise InputError(
                f"all batches must hold images of one size, got {_shapes_text(pictures)} after "
                f"{_shapes_text(images[0])}"
            )
        if images and not reason and (labels is None) != (not targets):
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
    labels = torch.cat(targets) if targets and not reason else None
    order = None
    if seed is not None:
        classes = np.full(number, NO_CLASS) if labels is None else labels.numpy()
        order = nested_order(classes, seed=seed)
        labels = None if labels is None else labels[order]
    stacked = (
        {key: _stacked([p[key] for p in images], order) for key in images[0]}
        if isinstance(images[0], Mapping)
        else _stacked(images, order)
    )
    return TensorImages(stacked, labels, name, split, num_classes, preprocessing, order, reason)


def _stacked(batches: Sequence[Tensor], order: Int64[np.ndarray, " n"] | None) -> Tensor:
    """The rows of all batches in an order, without a second copy of them."""
    if order is None:
        return torch.cat(tuple(batches))
    rows = torch.from_numpy(np.argsort(order)).split([len(batch) for batch in batches])
    first = batches[0]
    stacked = first.new_empty((len(order), *first.shape[1:]))
    for batch, places in zip(batches, rows, strict=True):
        stacked[places] = batch
    return stacked


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


def _to_the_end(data: Iterable) -> Iterator:
    """The batches; an error of the user's loader says after how many it came."""
    number = 0
    try:
        for batch in data:
            yield batch
            number += 1
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"data must be readable to its end, got {type(error).__name__} after {number} "
            f"batches: {error}"
        ) from error


def _split_batch(batch: Any) -> tuple[Any, Any]:
    """Images and targets; None where there are no targets."""
    if isinstance(batch, tuple | list):
        if len(batch) != 2:
            raise InputError(
                f"a batch must be images or (images, targets), got {len(batch)} items"
            )
        return batch[0], batch[1]
    if isinstance(batch, Mapping):
        inputs = {key: value for key, value in batch.items() if key not in _LABELS}
        labels = [value for key, value in batch.items() if key in _LABELS]
        if len(inputs) == len(labels) == 1:
            return next(iter(inputs.values())), labels[0]
    return batch, None


def _class_indices(targets: Any, images: int) -> tuple[Tensor | None, str]:
    """The targets, or None and the reason why they are no classes."""
    if targets is None:
        return None, ""
    try:
        labels = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        return None, (
            f"targets must be one class index per image, got {type(targets).__name__} ({error})"
        )
    if labels.shape == (images,) and not labels.is_floating_point():
        return labels.long().cpu(), ""
    kind = str(labels.dtype).removeprefix("torch.")
    return None, (
        f"targets must be one class index per image ({images}), got shape "
        f"{tuple(labels.shape)} of type {kind}"
    )


def _tensors(images: Any) -> list[Any]:
    return list(images.values()) if isinstance(images, Mapping) else [images]


def _first(images: Any) -> Tensor:
    tensors = _tensors(images)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        remedy = (
            "Convert the images by torch.from_numpy."
            if isinstance(images, np.ndarray)
            else "A Dataset of PIL images is passed as it is, without a DataLoader."
        )
        raise InputError(f"images must be tensors, got {type(images).__name__}. {remedy}")
    return tensors[0]


def _rows(images: Any, rows: slice) -> Any:
    if isinstance(images, Mapping):
        return {key: tensor[rows] for key, tensor in images.items()}
    return images[rows]


def _shapes_text(images: Any) -> str:
    return ", ".join("x".join(map(str, t.shape[1:])) for t in _tensors(images))
