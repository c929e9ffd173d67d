"""Blur: defocus, motion, zoom and Gaussian blur."""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.data.corruptions.filters import convolved, gaussian, motion_blurred, zoomed
from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS, in_unit
from visprism.data.corruptions.severities import severity_parameters

Images = Float[Tensor, "b 3 h w"]


@CORRUPTIONS.register
@in_unit
def defocus_blur(images: Images, severity: int, randomness: Randomness) -> Images:
    """Each point becomes a disk with a softened edge."""
    radius, sigma = severity_parameters("defocus_blur", severity, images)
    return convolved(images, _disk(radius, sigma))


@CORRUPTIONS.register
@in_unit
def motion_blur(images: Images, severity: int, randomness: Randomness) -> Images:
    """The camera moves along a line, at -45 to 45 degrees."""
    radius, sigma = severity_parameters("motion_blur", severity, images)
    angles = (90 * randomness.uniform(1)[:, 0] - 45).tolist()
    return torch.stack(
        [
            motion_blurred(image, radius, sigma, angle)
            for image, angle in zip(images, angles, strict=True)
        ]
    )


@CORRUPTIONS.register
@in_unit
def zoom_blur(images: Images, severity: int, randomness: Randomness) -> Images:
    """The mean of the image and of itself, enlarged by each of several factors."""
    factors = severity_parameters("zoom_blur", severity, images)
    total = 2 * images  # itself, and enlarged by 1
    for factor in factors[1:]:
        total += zoomed(images, factor)
    return total.div_(len(factors) + 1)


@CORRUPTIONS.register
@in_unit
def gaussian_blur(images: Images, severity: int, randomness: Randomness) -> Images:
    """A low-pass filter."""
    return gaussian(images, severity_parameters("gaussian_blur", severity, images))


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
