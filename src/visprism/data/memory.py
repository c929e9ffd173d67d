"""Image sets in memory, for small images that are read repeatedly."""

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from visprism.core.preprocessing import Preprocessing
from visprism.data.batches import framing, stacked
from visprism.data.image_set import ImageSet, balanced

_READ = 256  # images at a time


def in_memory(
    image_set: ImageSet, preprocessing: Preprocessing
) -> tuple[UInt8[Tensor, "n 3 h w"], Int64[Tensor, " n"]]:
    """All images, cropped but not normalized, and their classes; three bytes per pixel."""
    preprocessing = framing(image_set, preprocessing)
    images = [
        stacked(image_set.read(range(start, min(start + _READ, len(image_set)))), preprocessing)
        for start in range(0, len(image_set), _READ)
    ]
    return torch.cat(images), torch.from_numpy(image_set.targets)


def default_preprocessing(
    image_set: ImageSet, size: tuple[int, int], *, sample: int = 1000, seed: int = 0
) -> Preprocessing:
    """Preprocessing for a model without one: mean and deviation of the image set.

    They are computed over the pixels of at most `sample` images, balanced over the classes.
    """
    sampled = image_set.subset(balanced(image_set.targets, sample, seed=seed))
    images, _ = in_memory(sampled, Preprocessing(size))
    std, mean = torch.std_mean(images.double() / 255, dim=(0, 2, 3))
    # A constant channel has no deviation to divide by.
    return Preprocessing(size, mean=_short(mean), std=_short(std.clamp(min=1 / 255)))


def _short(values: Float[Tensor, " c"]) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in values.tolist())
