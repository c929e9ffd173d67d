"""Parts of image sets: a fraction of every class, to see how much data is needed."""

import numpy as np
import torch
from jaxtyping import Int

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.data.image_set import ImageSet


def stratified(image_set: ImageSet, fraction: float, *, seed: int = 0) -> ImageSet:
    """The same fraction of the images of every class, drawn at random, in their own order.

    Of a class with n images, `fraction` n are taken, rounded, and at least one. A smaller
    fraction is a part of a larger one by the same seed.

    Raises:
        InputError: if the fraction is not above 0 and at most 1.
    """
    return image_set.subset(_chosen(image_set, fraction, seed))


def held_out(
    image_set: ImageSet, fraction: float, *, seed: int = 0
) -> tuple[ImageSet, ImageSet]:
    """The images to train on, and a fraction of every class that is kept for validation.

    Raises:
        InputError: if the fraction is not above 0, or a class would have no image to train on.
    """
    chosen = _chosen(image_set, fraction, seed)
    kept = np.setdiff1d(np.arange(len(image_set)), chosen)
    targets = image_set.targets
    bare = np.setdiff1d(targets, targets[kept])
    if len(bare):
        raise InputError(
            f"a fraction of {fraction} leaves {len(bare)} of {len(np.unique(targets))} classes "
            "without an image to train on; hold out less, or take more images"
        )
    return image_set.subset(kept), image_set.subset(chosen)


def _chosen(image_set: ImageSet, fraction: float, seed: int) -> Int[np.ndarray, " m"]:
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
    return chosen
