"""Fixed augmentation: training batches that are the same in every pass.

Source: Park and Kim (2022), How do vision transformers work?, appendix A.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import torch
from jaxtyping import UInt8
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.data.augmentation.pipeline import SoftBatch, changed, finished, planned
from visprism.data.augmentation.settings import STRONG, STRONG_LARGE, Augmentation
from visprism.data.augmentation.views import Views
from visprism.data.batches import stacked
from visprism.data.feed import check_labels
from visprism.data.image_set import ImageSet

_SMALL = 64  # pixels: longest side of images with padding instead of random resized crops


@dataclass(frozen=True)
class FixedAugmentation(Sequence):
    """Augmented images and the probabilities of their classes, by batch."""

    image_set: ImageSet
    preprocessing: Preprocessing
    batch_size: int
    num_classes: int
    seed: int
    numbers: range  # of the batches, from 0

    def __len__(self) -> int:
        """Number of batches; the last one may be smaller."""
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> SoftBatch: ...
    @overload
    def __getitem__(self, index: slice) -> "FixedAugmentation": ...
    def __getitem__(self, index: int | slice) -> "SoftBatch | FixedAugmentation":
        """One batch; a slice is read only when it is iterated over."""
        if isinstance(index, slice):
            return replace(self, numbers=self.numbers[index])
        return self._prepared(self.numbers[index])

    def __iter__(self) -> Iterator[SoftBatch]:
        return (self._prepared(number) for number in self.numbers)

    @property
    def augmentation(self) -> Augmentation:
        """The strong augmentation of the paper for images of this size."""
        return STRONG if max(self.preprocessing.size) <= _SMALL else STRONG_LARGE

    def _prepared(self, number: int) -> SoftBatch:
        start = number * self.batch_size
        positions = torch.arange(start, min(start + self.batch_size, len(self.image_set)))
        augmentation, preprocessing = self.augmentation, self.preprocessing
        size, seed = preprocessing.size, self.seed
        plan = planned(augmentation, positions, size, (0, 1), "fixed", number, seed=seed)
        pictures = self.image_set.read(positions.tolist())
        pixels: UInt8[Tensor, "b 3 h w"]
        if augmentation.padding:
            crops = stacked(pictures, preprocessing)
            pixels = changed(crops, plan.random, augmentation, preprocessing)
        else:
            view = Views(augmentation, preprocessing, seed)
            numbered = zip(pictures, positions.tolist(), strict=True)
            pixels = torch.stack([view(picture, "fixed", i) for picture, i in numbered])
        targets = torch.from_numpy(self.image_set.targets)[positions]
        return finished(pixels, targets, plan, augmentation, preprocessing, self.num_classes)


def fixed_augmentation(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    num_classes: int,
    *,
    seed: int = 0,
) -> FixedAugmentation:
    """The image set with the paper's augmentation and soft targets, the same in every pass.

    Images of at most 64 pixels a side get `STRONG`, larger ones `STRONG_LARGE`. A batch depends
    on the seed, its number and its images; the order is that of the image set. In a batch of
    an odd size, the image in the middle is mixed with itself.

    Args:
        image_set: labeled images.
        preprocessing: size, mean and standard deviation of the model.
        batch_size: images of a batch, which are mixed in pairs.
        num_classes: classes of the model.
        seed: of the augmentation.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be positive, got {batch_size}")
    check_labels(image_set, num_classes)
    number = -(-len(image_set) // batch_size)
    return FixedAugmentation(
        image_set, preprocessing, batch_size, num_classes, seed, range(number)
    )
