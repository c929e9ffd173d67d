"""The feed of large images, decoded and cropped by worker processes."""

import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.fingerprint import fingerprint
from visprism.core.preprocessing import Preprocessing
from visprism.core.rng import stream
from visprism.data.augmentation.pipeline import SoftBatch, finished, planned
from visprism.data.augmentation.settings import PLAIN, Augmentation
from visprism.data.augmentation.views import Views
from visprism.data.feed import (
    check_padding,
    check_trainable,
    sampled_indices,
    shuffled_batches,
)
from visprism.data.image_set import ImageSet

Read = UInt8[Tensor, "b 3 h w"] | str  # or the error of an image


@dataclass(frozen=True)
class LoaderFeed:
    """Images that worker processes read in each epoch, such as those of ImageNet."""

    image_set: ImageSet
    num_classes: int
    batch_size: int
    augmentation: Augmentation
    preprocessing: Preprocessing
    seed: int
    workers: int
    compute: Compute

    @property
    def images(self) -> int:
        """Images of an epoch."""
        return len(self.image_set)

    @property
    def steps(self) -> int:
        """Batches of an epoch; the last may have fewer images."""
        return -(-self.images // self.batch_size)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of all classes and of 16 images; see `Feed.fingerprints`."""
        pictures = self.image_set.read(sampled_indices(self.images))
        sampled = [torch.from_numpy(np.array(picture)) for picture in pictures]
        targets = torch.from_numpy(self.image_set.targets)
        return {"classes": fingerprint([targets]), "sampled images": fingerprint(sampled)}

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch; see `Feed.epoch`.

        Raises:
            InputError: if an image cannot be read; it is named.
        """
        batches = shuffled_batches(self.images, self.batch_size, number, self.seed)
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


def _unchanged(batch: Any) -> Any:  # noqa: ANN401 (the result of a worker)
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

    Raises:
        InputError: if there are fewer images than one batch, they have no labels, a label is
            not below `num_classes`, or there cannot be workers.
    """
    classes = check_trainable(image_set, batch_size, num_classes)
    check_padding(augmentation, preprocessing)
    if workers < 0 or (workers and "fork" not in multiprocessing.get_all_start_methods()):
        raise InputError(
            f"workers must be 0, or positive where processes can be forked, as on Linux, got "
            f"{workers}"
        )
    return LoaderFeed(
        image_set, classes, batch_size, augmentation, preprocessing, seed, workers, compute
    )
