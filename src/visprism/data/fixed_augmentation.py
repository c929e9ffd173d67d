"""Augmented images that stay the same: batches as in training, with one draw for every pass.

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

_SMALL = 64  # longest side of images that are shifted in a frame, and not cut out


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

    @property
    def augmentation(self) -> Augmentation:
        """The paper's, for images of this size."""
        return STRONG if max(self.preprocessing.size) <= _SMALL else STRONG_LARGE

    def _prepared(self, number: int) -> SoftBatch:
        start = number * self.batch_size
        positions = torch.arange(start, min(start + self.batch_size, len(self.image_set)))
        how, way = self.augmentation, self.preprocessing
        plan = planned(how, positions, way.size, (0, 1), "fixed", number, seed=self.seed)
        pictures = self.image_set.read(positions.tolist())
        pixels: UInt8[Tensor, "b 3 h w"]
        if how.padding:
            pixels = changed(stacked(pictures, way), plan.drawn, how, way)
        else:
            view = Views(how, way, self.seed)
            numbered = zip(pictures, positions.tolist(), strict=True)
            pixels = torch.stack([view(picture, "fixed", i) for picture, i in numbered])
        targets = torch.from_numpy(self.image_set.targets)[positions]
        return finished(pixels, targets, plan, how, way, self.num_classes)


def augmented(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    num_classes: int,
    *,
    seed: int = 0,
) -> Augmented:
    """The image set as the paper trains on it, with soft targets; each pass gives the same.

    Images of at most 64 pixels a side are changed as `STRONG` says, larger ones as
    `STRONG_LARGE` does. A batch depends on the seed, its number and its images; the order is
    that of the image set. Of an odd number, the image in the middle is its own partner.

    Args:
        image_set: labeled images.
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
    check_labels(image_set, num_classes)
    number = -(-len(image_set) // batch_size)
    return Augmented(image_set, preprocessing, batch_size, num_classes, seed, range(number))
