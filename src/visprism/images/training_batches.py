"""Training batches: the augmented batches of each epoch, from memory or from files."""

import multiprocessing
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

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
from visprism.images.augmentation import PLAIN, Augmentation
from visprism.images.augmented import AugmentationPlan, Augmenter, SoftBatch, checked_labels
from visprism.images.image_set import ImageSet
from visprism.images.pixels import framing, in_memory

_SAMPLED = 16  # images whose digest stands for all, as large sets take long to read


@dataclass(frozen=True, eq=False)
class Feed:
    """The batches of training epochs, as images and probabilities of classes.

    A batch depends only on the seed, the epoch and the step, whatever the number of workers
    and processes, so that training can be resumed at any step without a stored state.
    """

    source: UInt8[Tensor, "n c h w"] | ImageSet = field(repr=False)  # crops, or files
    targets: Int64[Tensor, " n"] = field(repr=False)
    num_classes: int
    batch_size: int  # of all processes; the last batch of an epoch may have fewer images
    preprocessing: Preprocessing
    augmentation: Augmentation = PLAIN
    seed: int = 0
    workers: int = 0  # processes that read and augment; 0: this process
    compute: Compute = CPU  # device of the batches

    @property
    def images(self) -> int:
        """Number of images of an epoch."""
        return len(self.targets)

    @property
    def steps(self) -> int:
        """Number of batches of an epoch."""
        return -(-self.images // self.batch_size)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of all classes and of 16 images, by which other data is recognized."""
        count = min(self.images, _SAMPLED)
        sampled = torch.linspace(0, max(self.images - 1, 0), count).round().long().tolist()
        if isinstance(self.source, Tensor):
            pixels = [self.source[sampled]]
        else:
            pixels = [torch.from_numpy(np.array(i)) for i in self.source.read(sampled)]
        return {"classes": fingerprint([self.targets]), "sampled images": fingerprint(pixels)}

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch starting at step `start`, augmented, on the device.

        An epoch has every image once. `part`, (rank, world size), selects the share of this
        process in every batch; shares differ by at most one image, and together they are the
        batch of a single process.
        """
        views = _EpochViews(self, number, part)
        device = self.compute.torch_device
        with warnings.catch_warnings():  # about a fork with other threads, and about few cores
            warnings.filterwarnings("ignore", "This (process .* is multi-threaded|DataLoader)")
            loader = DataLoader(
                views,
                batch_size=None,
                sampler=range(start, self.steps),
                num_workers=self.workers,
                multiprocessing_context="fork" if self.workers else None,
                pin_memory=device.type == "cuda",
                generator=stream(self.seed, "workers", number),  # not the global one
            )
            batches = iter(loader)
        for step, pixels in zip(range(start, self.steps), batches, strict=True):
            if isinstance(pixels, str):
                raise InputError(pixels)
            plan = views.plan(step)
            targets = self.targets[plan.numbers].to(device)
            pixels = pixels.to(device, non_blocking=True)
            yield self.augmenter.batch(pixels, targets, plan)

    @cached_property
    def augmenter(self) -> Augmenter:
        """Its augmentation."""
        way = self.preprocessing
        if isinstance(self.source, ImageSet):
            way = framing(self.source, way)
        return Augmenter(self.augmentation, way, self.num_classes, self.seed)


class _EpochViews(Dataset):
    """The views of each batch of an epoch, or an error as text.

    One that is raised in a worker would bring its traceback.
    """

    def __init__(self, feed: Feed, number: int, part: tuple[int, int]) -> None:
        self._feed, self._number, self._part = feed, number, part
        self._order = shuffled_batches(feed.images, feed.batch_size, number, feed.seed)

    def plan(self, step: int) -> AugmentationPlan:
        """The random choices of a batch."""
        use = self._number, step
        return self._feed.augmenter.plan(self._order[step], *use, part=self._part)

    def __getitem__(self, index: int) -> UInt8[Tensor, "m c h w"] | str:
        plan, source = self.plan(index), self._feed.source
        if isinstance(source, Tensor):
            return self._feed.augmenter.views(source[plan.numbers], plan)
        numbers = plan.numbers.tolist()
        try:
            pictures = source.read(numbers)
        except InputError as error:
            faults = (source.fault(number) for number in numbers)
            reason = str(error).removeprefix("an image cannot be read: ")
            fault = next((fault for fault in faults if fault is not None), reason)
            return (
                f"an image of {source.name} cannot be read: {fault}. Repair it and "
                "resume, or start a new run with skip_bad=True."
            )
        return self._feed.augmenter.views(pictures, plan)


def shuffled_batches(
    images: int, batch_size: int, epoch: int, seed: int
) -> tuple[Int64[Tensor, " b"], ...]:
    """The indices of the images of each batch of an epoch, every image once."""
    order = torch.randperm(images, generator=stream(seed, "order", epoch))
    return order.split(batch_size)


def memory_feed(
    image_set: ImageSet, preprocessing: Preprocessing, batch_size: int, **options: Any
) -> Feed:
    """A feed of images that are decoded once and cached in memory, three bytes per pixel.

    Arguments are the same as in `loader_feed`; workers are worth it for RandAugment only.
    """
    feed = loader_feed(image_set, preprocessing, batch_size, **options)
    return replace(feed, source=in_memory(image_set, preprocessing)[0])


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
) -> Feed:
    """A feed of images that are read in each epoch, for data larger than the memory.

    Worker processes read, crop, flip and apply timm's RandAugment; erasing and mixing are done
    in batches.

    Args:
        image_set: labeled images.
        preprocessing: size, mean and standard deviation of the model.
        batch_size: images of an update, over all processes.
        augmentation: by default none.
        num_classes: classes of the model; by default the image set's.
        seed: of the order and the augmentation.
        workers: processes that read and augment; 0: this process.
        compute: device of the batches.
    """
    name = image_set.name
    if not 1 <= batch_size <= len(image_set):
        raise InputError(
            f"batch_size must be at most the number of images of {name} ({len(image_set)}), "
            f"and positive, got {batch_size}"
        )
    if workers < 0 or (workers and "fork" not in multiprocessing.get_all_start_methods()):
        raise InputError(
            f"workers must be 0, or positive where processes can be forked, as on Linux, got "
            f"{workers}"
        )
    return Feed(
        image_set,
        torch.from_numpy(image_set.targets),
        num_classes=checked_labels(image_set, num_classes),
        batch_size=batch_size,
        preprocessing=preprocessing,
        augmentation=augmentation,
        seed=seed,
        workers=workers,
        compute=compute,
    )
