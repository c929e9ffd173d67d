"""Augmentation: batches as the paper's networks are trained on them, the same in every pass.

RandAugment, mixup and cutmix are timm's. They draw from the global generators of Python and
NumPy, which are seeded for each batch from a stream of its own and then put back.

Source: Park and Kim (2022), How do vision transformers work?, appendix A.
"""

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageOps
from timm.data import Mixup
from timm.data.auto_augment import rand_augment_transform
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor

from visprism.data.batches import cropped, standardised
from visprism.data.image_set import ImageSet
from visprism.errors import InputError
from visprism.preprocessing import Preprocessing
from visprism.rng import stream

SoftBatch = tuple[Float[Tensor, "b 3 h w"], Float[Tensor, "b k"]]

MIXUP, CUTMIX, SMOOTHING = 1.0, 0.8, 0.1
_SMALL = 64  # longest side of images that are shifted in a frame, and not cut out
_PADDING = 4  # pixels of that frame
_GLOBAL = threading.Lock()  # of the generators that all threads share


@dataclass(frozen=True)
class Augmented(Sequence):
    """Augmented images and the probabilities of their classes, batch by batch."""

    image_set: ImageSet
    preprocessing: Preprocessing
    batch_size: int
    num_classes: int
    seed: int
    numbers: range  # of the batches, the first has number 0

    def __len__(self) -> int:
        """Number of batches; the last of all may be smaller."""
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> SoftBatch: ...
    @overload
    def __getitem__(self, index: slice) -> "Augmented": ...
    def __getitem__(self, index: int | slice) -> "SoftBatch | Augmented":
        """One batch; a slice is read only when it is iterated over."""
        if isinstance(index, slice):
            return replace(self, numbers=self.numbers[index])
        return self._prepared(self.numbers[index])

    def __iter__(self) -> Iterator[SoftBatch]:
        return (self._prepared(number) for number in self.numbers)

    def _prepared(self, number: int) -> SoftBatch:
        start = number * self.batch_size
        positions = range(start, min(start + self.batch_size, len(self.image_set)))
        pictures = self.image_set.read(positions)
        targets = torch.from_numpy(self.image_set.targets[positions.start : positions.stop])
        with _seeded(self.seed, number):
            view = _Views(self.preprocessing)
            pixels = torch.stack([view(picture) for picture in pictures])
            images = standardised(pixels, self.preprocessing)
            return _mixed(images, targets, self.num_classes)


def augmented(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    num_classes: int,
    *,
    seed: int = 0,
) -> Augmented:
    """The image set as the paper trains on it, with soft targets; each pass gives the same.

    Images of at most 64 pixels a side are shifted by up to 4 pixels, larger ones cut out at
    random (8 % to 100 % of the area); half are mirrored; then RandAugment (m9-n2, mstd1.0 for
    small images, mstd0.5 for larger ones), and for each batch mixup (1.0) or cutmix (0.8), with
    label smoothing 0.1. Random erasing, which the paper has for ImageNet, is left out.

    A batch depends on the seed, its number and its images. What it costs is timm's
    RandAugment, about half a millisecond for a small image.

    Args:
        image_set: labelled images.
        preprocessing: size, mean and standard deviation that the model wants.
        batch_size: images of a batch, which are mixed with each other.
        num_classes: of the model: how many probabilities a target has.
        seed: of everything that is drawn.

    Raises:
        InputError: if the batch size is none, images have no labels, or a label is not one of
            `num_classes`.
    """
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; wants at least 1 image")
    targets = image_set.targets
    if len(targets) and targets.min() < 0:
        raise InputError(
            f"{image_set.name} has no labels, which mixup mixes; take labelled images"
        )
    if len(targets) and targets.max() >= num_classes:
        raise InputError(
            f"{image_set.name} has class {targets.max()}, the model classes 0 to "
            f"{num_classes - 1}; take the data that it was trained on"
        )
    number = -(-len(image_set) // batch_size)
    return Augmented(image_set, preprocessing, batch_size, num_classes, seed, range(number))


@contextmanager
def _seeded(seed: int, number: int) -> Iterator[None]:
    """Inside, Python's and NumPy's global generators follow a stream of this batch's own."""
    draws = torch.randint(2**32, (2,), generator=stream(seed, "augment", number)).tolist()
    with _GLOBAL:
        kept = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            random.seed(draws[0])
            np.random.seed(draws[1])  # noqa: NPY002
            yield
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])  # noqa: NPY002


class _Views:
    """Random views of pictures: from a decoded image to bytes of the size that is wanted."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing
        self.small = max(preprocessing.size) <= _SMALL
        self.fill = tuple(min(255, round(255 * m)) for m in preprocessing.mean)
        self.rand_augment = rand_augment_transform(
            f"rand-m9-n2-mstd{1.0 if self.small else 0.5}",
            {"translate_const": int(0.45 * min(preprocessing.size)), "img_mean": self.fill},
        )

    def __call__(self, picture: Image.Image) -> UInt8[Tensor, "3 h w"]:
        """Another view of the picture."""
        picture = self._shifted(picture) if self.small else self._cut(picture)
        if random.random() < 0.5:
            picture = ImageOps.mirror(picture)
        return torch.from_numpy(np.array(self.rand_augment(picture))).permute(2, 0, 1)

    def _shifted(self, picture: Image.Image) -> Image.Image:
        height, width = self.preprocessing.size
        pixels = cropped(picture, self.preprocessing).permute(1, 2, 0).numpy()
        framed = ImageOps.expand(Image.fromarray(pixels), _PADDING)
        left, top = random.randint(0, 2 * _PADDING), random.randint(0, 2 * _PADDING)
        return framed.crop((left, top, left + width, top + height))

    def _cut(self, picture: Image.Image) -> Image.Image:
        how = {"interpolation": self.preprocessing.interpolation}
        crop = RandomResizedCropAndInterpolation(self.preprocessing.size, **how)
        return crop(picture)  # pyrefly: ignore


def _mixed(images: Float[Tensor, "b 3 h w"], targets: Tensor, num_classes: int) -> SoftBatch:
    """Each image mixed with another of the batch; of an odd number, one is left as it is."""
    mixup = Mixup(MIXUP, CUTMIX, label_smoothing=SMOOTHING, num_classes=num_classes)
    even = len(images) - len(images) % 2
    soft = _smoothed(targets, num_classes)
    if even:
        images[:even], soft[:even] = mixup(images[:even], targets[:even])
    return images, soft


def _smoothed(targets: Tensor, num_classes: int) -> Float[Tensor, "b k"]:
    soft = torch.full((len(targets), num_classes), SMOOTHING / num_classes)
    return soft.scatter_(1, targets[:, None], 1 - SMOOTHING + SMOOTHING / num_classes)
