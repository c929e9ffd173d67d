"""Channel mean and standard deviation of image sets, by which pixels are normalized."""

import numpy as np

from visprism.core.errors import InputError
from visprism.core.run import Progress
from visprism.data.image_set import ImageSet

_READ = 256  # images at a time


def statistics(
    image_set: ImageSet, *, progress: Progress | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all pixels of all images, in [0, 1].

    Computed from sums of integers, so that the result is exact in any order of the images.
    Every pixel has the same weight, so that a large image weighs more than a small one. Costs
    one pass over the images, and the memory of 256 of them.
    """
    if not len(image_set):
        raise InputError(f"{image_set.name} must have at least one image, got none")
    number, total, squares = 0, [0, 0, 0], [0, 0, 0]
    starts = range(0, len(image_set), _READ)
    for start in progress(starts, "channel statistics") if progress else starts:
        for picture in image_set.read(range(start, min(start + _READ, len(image_set)))):
            pixels = np.asarray(picture).reshape(-1, 3)
            number += len(pixels)
            for channel in range(3):
                counts = np.bincount(pixels[:, channel], minlength=256)
                total[channel] += int(counts @ _VALUES)
                squares[channel] += int(counts @ _VALUES**2)
    mean = tuple(s / (255 * number) for s in total)
    # n sum x² - (sum x)² is an integer, so that small values lose no digits.
    spread = (number * q - s * s for s, q in zip(total, squares, strict=True))
    return mean, tuple(value**0.5 / (255 * number) for value in spread)


_VALUES = np.arange(256)
