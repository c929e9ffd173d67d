"""Chance level: whether an accuracy is significantly above that of guessing."""

import numpy as np

from visprism.core.statistics import wilson
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text


def at_chance(accuracy: float, images: int, classes: int) -> bool:
    """Whether the lower end of Wilson's interval of an accuracy is at most 1 / classes.

    False where the accuracy, the number of images or the number of classes is not recorded.

    Example:
        >>> at_chance(0.11, 1000, 10), at_chance(0.14, 1000, 10)
        (True, False)
    """
    if classes < 2 or not images or not np.isfinite(accuracy):
        return False
    low, _ = wilson(np.array([round(accuracy * images)]), np.array([images]))
    return bool(low[0] <= 1 / classes)


def chance_findings(
    accuracy: float, images: int, classes: int, split: str = ""
) -> tuple[Finding, ...]:
    """VP101 for an accuracy that is not significantly above chance; empty otherwise."""
    if not at_chance(accuracy, images, classes):
        return ()
    text = (
        f"accuracy {accuracy:.1%} over {images_text(images, split)} is not significantly "
        f"above chance ({1 / classes:.1%} for {classes} classes): the model may not have been "
        "trained on these labels, they may be in another order, or the images may be too few "
        "to tell"
    )
    return (Finding(text, "VP101"),)
