"""Feeds: the batches of each epoch of training, augmented, ready for the model."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.rng import stream
from visprism.data.augmentation.draws import joined
from visprism.data.augmentation.pipeline import SoftBatch, changed, finished, planned
from visprism.data.augmentation.settings import PLAIN, Augmentation
from visprism.data.fingerprint import fingerprint, some_images
from visprism.data.image_set import ImageSet
from visprism.data.memory import in_memory

# Pixels that are augmented in one go: those of several batches, as each operation of
# RandAugment falls to few images of one, and calling it then takes longer than its work.
_PIXELS = {"cpu": 2**20, "other": 2**23}


@runtime_checkable
class Feed(Protocol):
    """What training reads: the batches of an epoch, as images and probabilities of classes."""

    @property
    def images(self) -> int:
        """Images of an epoch."""
        ...

    @property
    def num_classes(self) -> int:
        """Probabilities of a target."""
        ...

    @property
    def batch_size(self) -> int:
        """Images of a batch; the last of an epoch may have fewer."""
        ...

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        ...

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of all classes and of some images: by these, other data is told."""
        ...

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch from step `start` on, augmented, on the device.

        An epoch shows every image once. A batch depends on the seed, the epoch and the step
        alone: training can go on at any of them without a saved state. `part`, (rank, world),
        is this process's share of every batch; shares differ by at most one image, and
        together they are the batch of a single process.
        """
        ...


@dataclass(frozen=True)
class MemoryFeed:
    """Images in memory as bytes, which are augmented in batches on their device."""

    pixels: UInt8[Tensor, "n c h w"] = field(repr=False)
    targets: Int64[Tensor, " n"] = field(repr=False)
    num_classes: int
    batch_size: int
    augmentation: Augmentation
    preprocessing: Preprocessing
    seed: int

    @property
    def images(self) -> int:
        """Images of an epoch."""
        return len(self.pixels)

    @property
    def steps(self) -> int:
        """Batches of an epoch; the last may have fewer images."""
        return -(-self.images // self.batch_size)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Digests of all classes, and of 16 images; see `Feed.fingerprints`."""
        some = self.pixels[some_images(self.images)]
        return {"classes": fingerprint([self.targets]), "some images": fingerprint([some])}

    def epoch(
        self, number: int, *, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[SoftBatch]:
        """The batches of an epoch; see `Feed.epoch`."""
        batches = in_order(self.images, self.batch_size, number, self.seed)
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
            drawn = joined([plan.drawn for plan in plans])
            pixels = changed(
                self.pixels.index_select(0, numbers),
                drawn,
                self.augmentation,
                self.preprocessing,
            )
            counts = [len(plan.numbers) for plan in plans]
            parts = zip(plans, pixels.split(counts), numbers.split(counts), strict=True)
            for plan, some, which in parts:
                yield finished(
                    some,
                    self.targets[which],
                    plan,
                    self.augmentation,
                    self.preprocessing,
                    self.num_classes,
                )


def in_order(
    images: int, batch_size: int, epoch: int, seed: int
) -> tuple[Int64[Tensor, " b"], ...]:
    """The numbers of the images of each batch of an epoch: every image once."""
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
    """A feed of images that are decoded once and stay in memory, three bytes a pixel.

    Args:
        image_set: labeled images.
        preprocessing: size, mean and standard deviation that the model wants.
        batch_size: images of a step, over all processes.
        augmentation: how they are changed; by default not at all.
        num_classes: of the model; by default those of the image set.
        seed: of the order, and of everything that is drawn.
        compute: where the images lie, and are augmented.

    Raises:
        InputError: if there are fewer images than one batch, they have no labels, or a label is
            not one of `num_classes`.
    """
    classes = checked(image_set, batch_size, num_classes)
    check_padding(augmentation, preprocessing)
    pixels, targets = in_memory(image_set, preprocessing)
    pixels, targets = (tensor.to(compute.torch_device) for tensor in (pixels, targets))
    return MemoryFeed(pixels, targets, classes, batch_size, augmentation, preprocessing, seed)


def checked(image_set: ImageSet, batch_size: int, num_classes: int | None) -> int:
    """The number of classes, where images and labels can be trained on.

    Raises:
        InputError: if not.
    """
    name = image_set.name
    if not len(image_set):
        raise InputError(f"{name} holds no image; training wants at least one batch of them")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; wants at least 1 image")
    if batch_size > len(image_set):
        raise InputError(
            f"batch_size is {batch_size}, but {name} has {len(image_set)} images; wants "
            "at most as many"
        )
    classes = image_set.num_classes if num_classes is None else num_classes
    check_labels(image_set, classes)
    return classes


def check_padding(augmentation: Augmentation, preprocessing: Preprocessing) -> None:
    """Whether something of an image is left wherever it is cut out of its frame.

    Raises:
        InputError: if not.
    """
    height, width = preprocessing.size
    if augmentation.padding >= min(height, width):
        raise InputError(
            f"padding is {augmentation.padding}, and of images of {height}x{width} pixels "
            f"nothing might be left; wants less than {min(height, width)}"
        )


def check_labels(image_set: ImageSet, num_classes: int) -> None:
    """Whether every image has a label that the model knows.

    Raises:
        InputError: if not.
    """
    name, targets = image_set.name, image_set.targets
    if len(targets) and targets.min() < 0:
        raise InputError(f"{name} has no labels, which training wants; take labeled images")
    if len(targets) and targets.max() >= num_classes:
        raise InputError(
            f"{name} has class {targets.max()}, the model classes 0 to {num_classes - 1}; take "
            f"the data that it is made for, or a model of {image_set.num_classes} classes"
        )
