"""Statistics of image sets: what pixels are standardised by."""

from collections.abc import Callable, Iterable

import numpy as np

from visprism.core.errors import InputError
from visprism.data.image_set import ImageSet

Progress = Callable[[Iterable[int]], Iterable[int]]

_READ = 256  # images at a time


def statistics(
    image_set: ImageSet, *, progress: Progress | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, over all pixels of all images, in 0 ... 1.

    Sums of whole numbers, so that they are exact and no order of the images matters; every
    pixel counts the same, so that a large image counts more than a small one. One pass over the
    images, and the memory of a few. `progress` wraps the loop over them.

    Raises:
        InputError: if there is no image.
    """
    if not len(image_set):
        raise InputError(f"{image_set.name} holds no image; statistics want at least one")
    number, total, squares = 0, [0, 0, 0], [0, 0, 0]
    for start in (progress or iter)(range(0, len(image_set), _READ)):
        for picture in image_set.read(range(start, min(start + _READ, len(image_set)))):
            pixels = np.asarray(picture).reshape(-1, 3)
            number += len(pixels)
            for channel in range(3):
                counts = np.bincount(pixels[:, channel], minlength=256)
                total[channel] += int(counts @ _VALUES)
                squares[channel] += int(counts @ _VALUES**2)
    mean = tuple(s / (255 * number) for s in total)
    # n sum x² - (sum x)² is a whole number, so that nothing is lost where it is small.
    spread = (number * q - s * s for s, q in zip(total, squares, strict=True))
    return mean, tuple(value**0.5 / (255 * number) for value in spread)


_VALUES = np.arange(256)
