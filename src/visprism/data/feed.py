"""Feeds: the augmented batches of each training epoch."""

import multiprocessing
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import fingerprint
from visprism.core.run import stream
from visprism.data.augmentation.draws import concatenated
from visprism.data.augmentation.pipeline import SoftBatch, changed, finished, planned
from visprism.data.augmentation.settings import PLAIN, Augmentation
from visprism.data.augmentation.views import Views
from visprism.data.image_set import ImageSet
from visprism.data.memory import in_memory

_SAMPLED = 16  # images whose digest stands for all, as large sets take long to read
# Pixels that are augmented together: those of several batches, because each operation of
# RandAugment applies to few images of one batch, and its call takes longer than its work.
_PIXELS = {"cpu": 2**20, "other": 2**23}


@runtime_checkable
class Feed(Protocol):
    """The batches of training epochs, as images and probabilities of classes."""

    @property
    def images(self) -> int:
        """Number of images of an epoch."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of probabilities of a target."""
        ...

    @property
    def batch_size(self) -> int:
        """Images of a batch; the last batch of an epoch may have fewer."""
        ...

    @property
    def steps(self) -> int:
        """Number of batches of an epoch."""
        ...

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of all classes and of sampled images, by which other data is recognized."""
        ...

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch from step `start` on, augmented, on the device.

        An epoch has every image once. A batch depends on the seed, the epoch and the step
        alone, so that training can be resumed at any step without a stored state. `part`,
        (rank, world size), selects the share of this process in every batch; shares differ by
        at most one image, and together they are the batch of a single process.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class _ShuffledFeed(ABC):
    """What feeds of both kinds share: settings, the order of images, digests of the data."""

    num_classes: int
    batch_size: int
    augmentation: Augmentation
    preprocessing: Preprocessing
    seed: int

    @property
    @abstractmethod
    def images(self) -> int:
        """Images of an epoch."""

    @abstractmethod
    def _classes(self) -> Tensor:
        """The class of every image."""

    @abstractmethod
    def _pixels_of(self, indices: Sequence[int]) -> Iterable[Tensor]:
        """The pixels of some images, without augmentation."""

    @property
    def steps(self) -> int:
        """Batches of an epoch; the last may have fewer images."""
        return -(-self.images // self.batch_size)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of all classes and of 16 images; see `Feed.fingerprints`."""
        sampled = self._pixels_of(sampled_indices(self.images))
        return {
            "classes": fingerprint([self._classes()]),
            "sampled images": fingerprint(sampled),
        }

    def _order(self, epoch: int) -> tuple[Int64[Tensor, " b"], ...]:
        """The indices of the images of each batch of an epoch."""
        return shuffled_batches(self.images, self.batch_size, epoch, self.seed)


@dataclass(frozen=True)
class MemoryFeed(_ShuffledFeed):
    """Images in memory in eight bits, augmented in batches on their device."""

    pixels: UInt8[Tensor, "n c h w"] = field(repr=False)
    targets: Int64[Tensor, " n"] = field(repr=False)

    @property
    def images(self) -> int:
        """Images of an epoch."""
        return len(self.pixels)

    def _classes(self) -> Tensor:
        return self.targets

    def _pixels_of(self, indices: Sequence[int]) -> Iterable[Tensor]:
        return [self.pixels[indices]]

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch; see `Feed.epoch`."""
        batches = self._order(number)
        size = tuple(self.pixels.shape[2:])
        most = _PIXELS.get(self.pixels.device.type, _PIXELS["other"])
        together = max(1, most // (self.batch_size * size[0] * size[1]))
        for first in range(start, self.steps, together):
            steps = range(first, min(first + together, self.steps))
            plans = [
                planned(self.augmentation, batches[s], size, part, number, s, seed=self.seed)
                for s in steps
            ]
            numbers = torch.cat([plan.numbers for plan in plans]).to(self.pixels.device)
            random = concatenated([plan.random for plan in plans])
            pixels = changed(
                self.pixels.index_select(0, numbers),
                random,
                self.augmentation,
                self.preprocessing,
            )
            counts = [len(plan.numbers) for plan in plans]
            parts = zip(plans, pixels.split(counts), numbers.split(counts), strict=True)
            for plan, images, indices in parts:
                yield finished(
                    images,
                    self.targets[indices],
                    plan,
                    self.augmentation,
                    self.preprocessing,
                    self.num_classes,
                )


def shuffled_batches(
    images: int, batch_size: int, epoch: int, seed: int
) -> tuple[Int64[Tensor, " b"], ...]:
    """The indices of the images of each batch of an epoch, every image once."""
    order = torch.randperm(images, generator=stream(seed, "order", epoch))
    return order.split(batch_size)


def memory_feed(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    augmentation: Augmentation = PLAIN,
    num_classes: int | None = None,
    seed: int = 0,
    compute: Compute = CPU,
) -> MemoryFeed:
    """A feed of images that are decoded once and cached in memory, three bytes per pixel.

    Args:
        image_set: labeled images.
        preprocessing: size, mean and standard deviation of the model.
        batch_size: images of an update, over all processes.
        augmentation: by default none.
        num_classes: classes of the model; by default those of the image set.
        seed: of the order and the augmentation.
        compute: device of the images.
    """
    classes = check_trainable(image_set, batch_size, num_classes)
    check_padding(augmentation, preprocessing)
    pixels, targets = in_memory(image_set, preprocessing)
    pixels, targets = (tensor.to(compute.torch_device) for tensor in (pixels, targets))
    return MemoryFeed(
        pixels,
        targets,
        num_classes=classes,
        batch_size=batch_size,
        augmentation=augmentation,
        preprocessing=preprocessing,
        seed=seed,
    )


def check_trainable(image_set: ImageSet, batch_size: int, num_classes: int | None) -> int:
    """The number of classes of images that can be trained on."""
    name = image_set.name
    if not len(image_set):
        raise InputError(f"{name} must have at least one batch of images, got none")
    if batch_size < 1:
        raise InputError(f"batch_size must be positive, got {batch_size}")
    if batch_size > len(image_set):
        raise InputError(
            f"batch_size must be at most the number of images of {name} ({len(image_set)}), "
            f"got {batch_size}"
        )
    classes = image_set.num_classes if num_classes is None else num_classes
    check_labels(image_set, classes)
    return classes


def check_padding(augmentation: Augmentation, preprocessing: Preprocessing) -> None:
    """Require that every crop out of the padded image has pixels of the image."""
    height, width = preprocessing.size
    if augmentation.padding >= min(height, width):
        raise InputError(
            f"padding must be less than the side of the images ({height}x{width} pixels), got "
            f"{augmentation.padding}"
        )


def check_labels(image_set: ImageSet, num_classes: int) -> None:
    """Require that every image has a label below `num_classes`."""
    name, targets = image_set.name, image_set.targets
    if len(targets) and targets.min() < 0:
        raise InputError(f"images must have labels for training, and those of {name} have none")
    if len(targets) and targets.max() >= num_classes:
        raise InputError(
            f"labels must be below the number of classes ({num_classes}), got "
            f"{targets.max()} in {name}. Use a model of {image_set.num_classes} classes."
        )


def sampled_indices(images: int) -> list[int]:
    """Indices of up to 16 evenly spaced images, with the first and the last."""
    count = min(images, _SAMPLED)
    return torch.linspace(0, max(images - 1, 0), count).round().long().tolist()


Read = UInt8[Tensor, "b 3 h w"] | str  # or the error of an image


@dataclass(frozen=True)
class LoaderFeed(_ShuffledFeed):
    """Images that worker processes read in each epoch, such as those of ImageNet."""

    image_set: ImageSet
    workers: int
    compute: Compute

    @property
    def images(self) -> int:
        """Images of an epoch."""
        return len(self.image_set)

    def _classes(self) -> Tensor:
        return torch.from_numpy(self.image_set.targets)

    def _pixels_of(self, indices: Sequence[int]) -> Iterable[Tensor]:
        return [torch.from_numpy(np.array(picture)) for picture in self.image_set.read(indices)]

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch; see `Feed.epoch`."""
        batches = self._order(number)
        size, augmentation, seed = self.preprocessing.size, self.augmentation, self.seed
        plans = [
            planned(augmentation, batches[step], size, part, number, step, seed=seed)
            for step in range(start, self.steps)
        ]
        device = self.compute.torch_device
        loader = DataLoader(
            _Read(self.image_set, self._views, number),
            batch_sampler=[plan.numbers.tolist() for plan in plans],  # pyrefly: ignore
            num_workers=self.workers,
            multiprocessing_context="fork" if self.workers else None,
            collate_fn=_unchanged,
            pin_memory=device.type == "cuda",
            generator=stream(seed, "workers", number),  # not the global one
        )
        for plan, pixels in zip(plans, _iterator(loader), strict=True):
            if isinstance(pixels, str):
                raise InputError(pixels)
            targets = torch.from_numpy(self.image_set.targets[plan.numbers.numpy()])
            yield finished(
                pixels.to(device, non_blocking=True),
                targets.to(device),
                plan,
                augmentation,
                self.preprocessing,
                self.num_classes,
            )

    @cached_property
    def _views(self) -> Views:
        return Views(self.augmentation, self.preprocessing, self.seed)


class _Read(Dataset):
    """Random views of images, which depend on the epoch and the index of the image."""

    def __init__(self, image_set: ImageSet, views: Views, epoch: int) -> None:
        self._image_set, self._views, self._epoch = image_set, views, epoch

    def __getitems__(self, numbers: Sequence[int]) -> Read:
        """A batch, or an error as text: one raised in a worker would bring its traceback."""
        try:
            pictures = self._image_set.read(numbers)
        except InputError as error:
            faults = (self._image_set.fault(number) for number in numbers)
            reason = str(error).removeprefix("an image cannot be read: ")
            fault = next((fault for fault in faults if fault is not None), reason)
            return (
                f"an image of {self._image_set.name} cannot be read: {fault}. Repair it and "
                "resume, or start a new run with skip_bad=True."
            )
        views = [
            self._views(picture, self._epoch, number)
            for picture, number in zip(pictures, numbers, strict=True)
        ]
        return torch.stack(views) if views else torch.empty(0, 3, *self._views.size).byte()


def _iterator(loader: DataLoader) -> Iterator[Read]:
    """The batches, without the warning of Python 3.12 about a fork beside other threads."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")
        return iter(loader)


def _unchanged(batch: Any) -> Any:
    return batch


def loader_feed(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    augmentation: Augmentation = PLAIN,
    num_classes: int | None = None,
    seed: int = 0,
    workers: int = 0,
    compute: Compute = CPU,
) -> LoaderFeed:
    """A feed of images that are read in each epoch, for data larger than the memory.

    Worker processes crop images at random, flip them and apply timm's RandAugment; erasing and
    mixing are done in batches. The result depends on the seed, the epoch and the index of the
    image, not on the workers.

    Args:
        image_set: labeled images.
        preprocessing: size, mean and standard deviation of the model.
        batch_size: images of an update, over all processes.
        augmentation: by default none.
        num_classes: classes of the model; by default those of the image set.
        seed: of the order and the augmentation.
        workers: processes that read; 0: this process.
        compute: device of the batches.
    """
    classes = check_trainable(image_set, batch_size, num_classes)
    check_padding(augmentation, preprocessing)
    if workers < 0 or (workers and "fork" not in multiprocessing.get_all_start_methods()):
        raise InputError(
            f"workers must be 0, or positive where processes can be forked, as on Linux, got "
            f"{workers}"
        )
    return LoaderFeed(
        image_set,
        workers,
        compute,
        num_classes=classes,
        batch_size=batch_size,
        augmentation=augmentation,
        preprocessing=preprocessing,
        seed=seed,
    )
