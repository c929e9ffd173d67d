"""The mean corruption error (mCE) of Hendrycks and Dietterich (2019), sec. 4.1."""

from collections.abc import Mapping
from math import nan

import numpy as np

Condition = tuple[str, int]  # a corruption and its severity

# AlexNet's error on ImageNet-C, mean over the five severities (Hendrycks and Dietterich 2019,
# table 1, in full digits from the authors' repository), for images of 224x224 pixels.
ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
ALEXNET_IMAGES = 224, 224, 1000  # height, width, classes


def relative_errors(
    errors: Mapping[Condition, float], reference: Mapping[str, float]
) -> dict[str, float]:
    """CE of each corruption of a reference, whose mean is the mCE; NaN if one is missing.

    CE_c = sum over severities of the error / sum of the reference's error.

    Args:
        errors: error rate by corruption and severity.
        reference: mean error of the reference over the five severities, by corruption.
    """
    return {
        name: float(np.mean([errors.get((name, s), nan) for s in range(1, 6)])) / error
        for name, error in reference.items()
    }
