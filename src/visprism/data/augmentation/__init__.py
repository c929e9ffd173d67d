"""Augmentation of training images: settings, and the batched operations that follow them."""

from visprism.data.augmentation.settings import (
    PLAIN,
    STRONG,
    STRONG_LARGE,
    WEAK,
    WEAK_LARGE,
    Augmentation,
    RandAugment,
    read_rand_augment,
)

__all__ = [
    "PLAIN",
    "STRONG",
    "STRONG_LARGE",
    "WEAK",
    "WEAK_LARGE",
    "Augmentation",
    "RandAugment",
    "read_rand_augment",
]
