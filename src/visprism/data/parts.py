"""Parts of image sets: a fraction of every class, to see how much data is needed."""

import numpy as np
import torch

from visprism.data.image_set import ImageSet
from visprism.errors import InputError
from visprism.rng import stream


def stratified(image_set: ImageSet, fraction: float, *, seed: int = 0) -> ImageSet:
    """The same fraction of the images of every class, drawn at random, in their own order.

    Of a class with n images, `fraction` n are taken, rounded, and at least one. A smaller
    fraction is a part of a larger one by the same seed.

    Raises:
        InputError: if the fraction is not above 0 and at most 1.
    """
    if not 0 < fraction <= 1:
        raise InputError(
            f"fraction is {fraction}; wants a part of the images, above 0, up to 1"
        )
    targets = image_set.targets
    taken = []
    for target in np.unique(targets):
        positions = np.flatnonzero(targets == target)
        generator = stream(seed, "stratified", int(target))
        order = torch.randperm(len(positions), generator=generator).numpy()
        count = max(1, round(fraction * len(positions)))
        taken.append(positions[order[:count]])
    chosen = np.sort(np.concatenate(taken)) if taken else np.arange(0)
    return image_set.subset(chosen)
