"""Severities: parameters of each corruption for severities 1 to 5, by the size of the images.

The numbers are those from which CIFAR-10-C, Tiny ImageNet-C and ImageNet-C were made.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations, and the code that they published with it.
"""

from typing import Any

import numpy as np
from torch import Tensor

from visprism.core.errors import InputError

SIZES = ("CIFAR", "Tiny ImageNet", "ImageNet")
# Sides at which a table gives way to the next: the geometric means of 32, 64 and 224.
_UPTO = (45, 119)


def _factors(stop: float, step: float) -> tuple[float, ...]:
    """Zoom factors from 1, as `numpy.arange` rounds them: (1, 1.06, 0.01) has 7 values."""
    return tuple(np.arange(1, stop, step).tolist())


_CIFAR: dict[str, list[Any]] = {
    "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10],  # standard deviation
    "shot_noise": [500, 250, 100, 75, 50],  # photons of a white pixel
    "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],  # fraction of values
    "speckle_noise": [0.06, 0.1, 0.12, 0.16, 0.2],  # deviation, relative to the value
    "gaussian_blur": [0.4, 0.6, 0.7, 0.8, 1],  # sigma in pixels
    # sigma, largest displacement, repeats
    "glass_blur": [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    "defocus_blur": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],  # radius, sigma
    "motion_blur": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],  # radius, sigma
    "zoom_blur": [_factors(stop, 0.01) for stop in (1.06, 1.11, 1.16, 1.21, 1.26)],
    "fog": [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],  # strength, decay
    "frost": [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)],  # image, ice
    # mean, deviation, zoom, threshold, radius and sigma of the blur, weight of the image
    "snow": [
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ],
    # mean, deviation, sigma, threshold, strength (of mud: sigma), liquid
    "spatter": [
        (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
        (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
        (0.65, 0.3, 1, 0.69, 0.5, "water"),
        (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
        (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
    ],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],  # factor
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],  # added to the value
    "saturate": [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],  # factor, added
    "jpeg_compression": [80, 65, 58, 50, 40],  # quality
    "pixelate": [0.95, 0.9, 0.85, 0.75, 0.65],  # side, relative
    # displacement, its sigma, shift of corners, all in pixels
    "elastic_transform": [
        (0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96),
    ],
}  # fmt: skip

_TINY = _CIFAR | {
    "gaussian_noise": [0.04, 0.08, 0.12, 0.15, 0.18],
    "shot_noise": [250, 100, 50, 30, 15],
    "impulse_noise": [0.01, 0.02, 0.05, 0.08, 0.14],
    "speckle_noise": [0.15, 0.2, 0.25, 0.3, 0.35],
    "gaussian_blur": [0.5, 0.75, 1, 1.25, 1.5],
    "glass_blur": [(0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)],
    "defocus_blur": [(0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)],
    "motion_blur": [(10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)],
    "fog": [(0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)],
    "frost": [(1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)],
    "snow": [
        (*layer[:6], share)
        for layer, share in zip(_CIFAR["snow"], (0.8, 0.8, 0.7, 0.65, 0.6), strict=True)
    ],
    "spatter": [
        (0.62, 0.1, 0.7, 0.7, 0.6, "water"),
        (0.65, 0.1, 0.8, 0.7, 0.6, "water"),
        (0.65, 0.3, 1, 0.69, 0.6, "water"),
        (0.65, 0.1, 0.7, 0.68, 0.6, "mud"),
        (0.65, 0.1, 0.5, 0.67, 0.6, "mud"),
    ],
    "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
    "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
    "saturate": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)],
    "jpeg_compression": [65, 58, 50, 40, 25],
    "pixelate": [0.9, 0.8, 0.7, 0.6, 0.5],
    "elastic_transform": [
        (0, 0, 5.12), (3.2, 19.2, 3.84), (6.4, 5.12, 3.84), (6.4, 1.92, 1.92),
        (10.24, 1.92, 1.28),
    ],
}  # fmt: skip

_IMAGENET = _TINY | {
    "gaussian_noise": [0.08, 0.12, 0.18, 0.26, 0.38],
    "shot_noise": [60, 25, 12, 5, 3],
    "impulse_noise": [0.03, 0.06, 0.09, 0.17, 0.27],
    "speckle_noise": [0.15, 0.2, 0.35, 0.45, 0.6],
    "gaussian_blur": [1, 2, 3, 4, 6],
    "glass_blur": [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
    "defocus_blur": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
    "motion_blur": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    "zoom_blur": [
        _factors(1.11, 0.01), _factors(1.16, 0.01), _factors(1.21, 0.02), _factors(1.26, 0.02),
        _factors(1.31, 0.03),
    ],
    "fog": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
    "frost": [(1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)],
    "snow": [
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ],
    "spatter": [
        (0.65, 0.3, 4, 0.69, 0.6, "water"),
        (0.65, 0.3, 3, 0.68, 0.6, "water"),
        (0.65, 0.3, 2, 0.68, 0.5, "water"),
        (0.65, 0.3, 1, 0.65, 1.5, "mud"),
        (0.67, 0.4, 1, 0.65, 1.5, "mud"),
    ],
    "saturate": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
    "jpeg_compression": [25, 18, 15, 10, 7],
    "pixelate": [0.6, 0.5, 0.4, 0.3, 0.25],
    # 244 where one expects 224, as in the published code.
    "elastic_transform": [
        (488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88),
        (29.28, 2.44, 4.88),
    ],
}  # fmt: skip

_TABLES = dict(zip(SIZES, (_CIFAR, _TINY, _IMAGENET), strict=True))


def table_for(height: int, width: int) -> str:
    """The one of `SIZES` that is nearest by ratio, whose severities apply."""
    side = min(height, width)
    return SIZES[sum(side > upto for upto in _UPTO)]


def check_severity(severity: int) -> None:
    """Check a severity."""
    if isinstance(severity, bool) or severity not in (1, 2, 3, 4, 5):
        raise InputError(f"severity must be 1 (mild) to 5 (severe), got {severity!r}")


def severity_parameters(corruption: str, severity: int, images: Tensor) -> Any:
    """The parameters of a corruption at a severity, for images of this size."""
    height, width = images.shape[2:]
    return _TABLES[table_for(height, width)][corruption][severity - 1]
