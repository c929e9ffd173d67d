"""Subsets of image sets: a fraction of every class, and validation sets."""

import numpy as np
import torch
from jaxtyping import Int

from visprism.core.errors import InputError
from visprism.core.run import stream
from visprism.data.image_set import ImageSet


def stratified(image_set: ImageSet, fraction: float, *, seed: int = 0) -> ImageSet:
    """The same fraction of the images of every class, selected at random, in their order.

    Of a class with n images, `fraction` n are selected, rounded, and at least one. With one
    seed, a smaller fraction is a subset of a larger one.
    """
    return image_set.subset(_chosen(image_set, fraction, seed))


def held_out(
    image_set: ImageSet, fraction: float, *, seed: int = 0
) -> tuple[ImageSet, ImageSet]:
    """The training images, and a fraction of every class for validation."""
    chosen = _chosen(image_set, fraction, seed)
    training = np.setdiff1d(np.arange(len(image_set)), chosen)
    targets = image_set.targets
    empty = np.setdiff1d(targets, targets[training])
    if len(empty):
        raise InputError(
            "fraction must leave a training image in every class, got "
            f"{fraction}, which leaves none in {len(empty)} of {len(np.unique(targets))} "
            "classes. Use a smaller fraction or more images."
        )
    return image_set.subset(training), image_set.subset(chosen)


def _chosen(image_set: ImageSet, fraction: float, seed: int) -> Int[np.ndarray, " m"]:
    if not 0 < fraction <= 1:
        raise InputError(f"fraction must be in (0, 1], got {fraction}")
    targets = image_set.targets
    selected = []
    for target in np.unique(targets):
        positions = np.flatnonzero(targets == target)
        generator = stream(seed, "stratified", int(target))
        order = torch.randperm(len(positions), generator=generator).numpy()
        count = max(1, round(fraction * len(positions)))
        selected.append(positions[order[:count]])
    chosen = np.sort(np.concatenate(selected)) if selected else np.arange(0)
    return chosen
