"""Blur: defocus, glass, motion, zoom and Gaussian blur."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.images.corruptions.corrupt import Images, Randomness, corruption
from visprism.images.corruptions.filters import convolved, gaussian, motion_blurred, zoomed


@corruption
def defocus_blur(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """Each point becomes a disk with a softened edge."""
    radius, sigma = parameters
    return convolved(images, _disk(radius, sigma))


@corruption
def motion_blur(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """The camera moves along a line, at -45 to 45 degrees."""
    radius, sigma = parameters
    angles = (90 * randomness.uniform(1)[:, 0] - 45).tolist()
    return torch.stack(
        [
            motion_blurred(image, radius, sigma, angle)
            for image, angle in zip(images, angles, strict=True)
        ]
    )


@corruption
def zoom_blur(images: Images, factors: Sequence, randomness: Randomness) -> Images:
    """The mean of the image and of itself, enlarged by each of several factors."""
    total = 2 * images  # itself, and enlarged by 1
    for factor in factors[1:]:
        total += zoomed(images, factor)
    return total.div_(len(factors) + 1)


@corruption
def gaussian_blur(images: Images, sigma: float | int, randomness: Randomness) -> Images:
    """A low-pass filter."""
    return gaussian(images, sigma)


@lru_cache
def _disk(radius: float | int, sigma: float | int) -> Float[Tensor, "k k"]:
    """A disk, blurred over 3x3 pixels (5x5 for radii above 8) so that its edge is soft."""
    reach = max(8, int(radius))
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    side = 1 if radius <= 8 else 2
    taps = np.exp(-(np.arange(-side, side + 1) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    wide = np.pad(disk / disk.sum(), side, mode="reflect")
    for axis in (0, 1):
        wide = np.apply_along_axis(np.convolve, axis, wide, taps, mode="valid")
    return torch.from_numpy(wide).float()


@corruption
def glass_blur(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """Pixels copied from near ones between two Gaussian blurs."""
    sigma, reach, repeats = parameters
    height, width = images.shape[2:]
    blurred = gaussian(images, sigma).mul_(255).add_(1e-3).floor_().div_(255)
    source = torch.arange(height * width, device=images.device).expand(len(images), -1)
    for _ in range(repeats):
        moves = randomness.integers(-reach, reach, 2, height, width)
        source = source.gather(1, copied_from(moves, reach))
    flat = blurred.flatten(2)
    shuffled = flat.gather(2, source[:, None].expand_as(flat))
    return gaussian(shuffled.view_as(images), sigma)


def copied_from(moves: Int64[Tensor, "b 2 h w"], reach: int) -> Int64[Tensor, "b n"]:
    """The pixel whose colors each pixel has after one round.

    The published code visits the pixels one by one, from the lower right to the upper left,
    and gives each the colors of a random neighbor; it means to swap the two, but NumPy's
    views make it a copy. A neighbor that was visited before already has the colors of its
    neighbor. So each pixel points to an original pixel or to one that was visited before,
    and the chain of pointers ends. Pointer doubling follows all chains of all images in a
    number of steps that is the logarithm of the longest chain, with the same result.
    """
    _, _, height, width = moves.shape
    number = height * width
    place = torch.arange(number, device=moves.device)
    row, column = place // width, place % width
    inside = (row > reach) & (row <= height - reach) & (column > reach)
    inside &= column <= width - reach
    neighbor = place + (moves[:, 0] * width + moves[:, 1]).flatten(1)
    neighbor = torch.where(inside, neighbor, place)
    # Pixels are visited in reverse raster order.
    done = inside[neighbor] & (neighbor > place)
    source = torch.where(done, neighbor + number, neighbor)
    while True:
        further = source.gather(1, source % number)
        pending = source >= number
        if not pending.any():
            return source
        source = torch.where(pending, further, source)
