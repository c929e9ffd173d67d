"""Loading for training: large images, decoded and cut out by worker processes."""

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
from visprism.core.preprocessing import Preprocessing
from visprism.core.rng import stream
from visprism.data.augmentation.pipeline import SoftBatch, finished, planned
from visprism.data.augmentation.settings import PLAIN, Augmentation
from visprism.data.augmentation.views import Views
from visprism.data.feed import check_padding, checked, in_order
from visprism.data.fingerprint import fingerprint, some_images
from visprism.data.image_set import ImageSet

Read = UInt8[Tensor, "b 3 h w"] | str  # or what is wrong with an image


@dataclass(frozen=True)
class LoaderFeed:
    """Images that are read anew in each epoch, as of ImageNet, by worker processes."""

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
        """Digests of all classes, and of 16 images; see `Feed.fingerprints`."""
        read = self.image_set.read(some_images(self.images))
        some = [torch.from_numpy(np.array(picture)) for picture in read]
        targets = torch.from_numpy(self.image_set.targets)
        return {"classes": fingerprint([targets]), "some images": fingerprint(some)}

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch; see `Feed.epoch`.

        Raises:
            InputError: if an image cannot be read; it is named.
        """
        batches = in_order(self.images, self.batch_size, number, self.seed)
        size, how, seed = self.preprocessing.size, self.augmentation, self.seed
        plans = [
            planned(how, batches[step], size, part, number, step, seed=seed)
            for step in range(start, self.steps)
        ]
        device = self.compute.torch_device
        loader = DataLoader(
            _Read(self.image_set, self._views, number),
            batch_sampler=[plan.numbers.tolist() for plan in plans],  # pyrefly: ignore
            num_workers=self.workers,
            multiprocessing_context="fork" if self.workers else None,
            collate_fn=_as_read,
            pin_memory=device.type == "cuda",
            generator=stream(seed, "workers", number),  # not the global one
        )
        for plan, pixels in zip(plans, _started(loader), strict=True):
            if isinstance(pixels, str):
                raise InputError(pixels)
            targets = torch.from_numpy(self.image_set.targets[plan.numbers.numpy()])
            yield finished(
                pixels.to(device, non_blocking=True),
                targets.to(device),
                plan,
                how,
                self.preprocessing,
                self.num_classes,
            )

    @cached_property
    def _views(self) -> Views:
        return Views(self.augmentation, self.preprocessing, self.seed)


class _Read(Dataset):
    """Views of the images with given numbers, which depend on the epoch and the number."""

    def __init__(self, image_set: ImageSet, views: Views, epoch: int) -> None:
        self._image_set, self._views, self._epoch = image_set, views, epoch

    def __getitems__(self, numbers: Sequence[int]) -> Read:
        """A batch, or what is wrong: an error of a worker would come with its traceback."""
        try:
            pictures = self._image_set.read(numbers)
        except InputError as error:
            found = (self._image_set.fault(number) for number in numbers)
            own = str(error).removeprefix("an image cannot be read: ")
            which = next((fault for fault in found if fault is not None), own)
            return (
                f"an image of {self._image_set.name} cannot be read: {which}; repair it "
                "and go on with --resume, or leave it out with --skip-bad in a new run"
            )
        views = [
            self._views(picture, self._epoch, number)
            for picture, number in zip(pictures, numbers, strict=True)
        ]
        return torch.stack(views) if views else torch.empty(0, 3, *self._views.size).byte()


def _started(loader: DataLoader) -> Iterator[Read]:
    """The batches; from Python 3.12 on, a fork beside other threads would be warned of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")
        return iter(loader)


def _as_read(batch: Any) -> Any:  # noqa: ANN401 (what a worker has read)
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
    """A feed of images that are read anew in each epoch, for data that memory does not hold.

    Images are cut out at random (`Augmentation.area` to all of the area, then out of a frame of
    black of `Augmentation.padding`), mirrored and changed by timm's RandAugment, one by one, in
    worker processes; erased and mixed in batches. What an image becomes depends on the seed,
    the epoch and its number, not on the workers.

    Args:
        image_set: labeled images.
        preprocessing: size, mean and standard deviation that the model wants.
        batch_size: images of a step, over all processes.
        augmentation: how they are changed.
        num_classes: of the model; by default those of the image set.
        seed: of the order, and of everything that is drawn.
        workers: processes that read; 0 reads in this one.
        compute: where the images are erased and mixed.

    Raises:
        InputError: if there are fewer images than one batch, they have no labels, a label is
            not one of `num_classes`, or there cannot be workers.
    """
    classes = checked(image_set, batch_size, num_classes)
    check_padding(augmentation, preprocessing)
    if workers < 0 or (workers and "fork" not in multiprocessing.get_all_start_methods()):
        raise InputError(
            f"workers is {workers}; wants 0, or more where processes can be forked, as on Linux"
        )
    return LoaderFeed(
        image_set, classes, batch_size, augmentation, preprocessing, seed, workers, compute
    )
