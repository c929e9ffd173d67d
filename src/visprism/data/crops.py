"""Crops in memory: the crops of the first images of a set, which are decoded once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import torch
from jaxtyping import UInt8
from torch import Tensor

from visprism.core.preprocessing import Preprocessing
from visprism.data.batches import framing, stacked
from visprism.data.image_set import ImageSet

MOST_BYTES = 2**29  # of crops in memory, for all sizes together


class Crops:
    """Center crops of an image set in eight bits; those of the first images stay in memory.

    Memory is taken when crops are first read, three bytes per pixel.
    """

    def __init__(
        self, image_set: ImageSet, preprocessing: Preprocessing, most_bytes: int = MOST_BYTES
    ) -> None:
        self._image_set = image_set
        self._preprocessing = preprocessing
        height, width = preprocessing.size
        number = min(len(image_set), max(0, most_bytes) // (3 * height * width))
        self._crops = torch.empty(number, 3, height, width, dtype=torch.uint8)
        self._is_read = torch.zeros(number, dtype=torch.bool)

    @property
    def nbytes(self) -> int:
        """Bytes of all crops that have a place in memory."""
        return self._crops.nbytes

    def __call__(self, positions: Sequence[int]) -> UInt8[Tensor, "b 3 h w"]:
        """The crops of the images at consecutive positions; a copy, which may be changed."""
        start, stop = positions[0], positions[-1] + 1
        if stop <= len(self._crops) and self._is_read[start:stop].all():
            return self._crops[start:stop].clone()
        crops = stacked(self._image_set.read(positions), self._preprocessing)
        fitting = min(stop, len(self._crops)) - start
        if fitting > 0:
            self._crops[start : start + fitting] = crops[:fitting]
            self._is_read[start : start + fitting] = True
        return crops


@dataclass
class CropCache:
    """The crops of an image set by size, crop and interpolation, whatever the normalization."""

    most_bytes: int = MOST_BYTES
    _crops: dict[Preprocessing, Crops] = field(default_factory=dict)
    _one_at_a_time: Lock = field(default_factory=Lock)

    def of(self, image_set: ImageSet, preprocessing: Preprocessing) -> Crops:
        """The crops for a preprocessing, with the memory that others have left."""
        geometry = replace(framing(image_set, preprocessing), mean=(0.0,), std=(1.0,))
        with self._one_at_a_time:
            if geometry not in self._crops:
                left = self.most_bytes - sum(crops.nbytes for crops in self._crops.values())
                self._crops[geometry] = Crops(image_set, geometry, left)
            return self._crops[geometry]
