"""Corruptions: the 15 + 4 of ImageNet-C and the sequences of ImageNet-P, made on the fly."""

from visprism.images.corruptions import (  # noqa: F401 (each registers its corruptions)
    blur,
    digital,
    noise,
    weather,
)
from visprism.images.corruptions.corrupt import COMMON, CORRUPTIONS, EXTRA, change_of, corrupt
from visprism.images.corruptions.sequences import PERTURBATIONS, SequenceBatches, sequence
from visprism.images.corruptions.severities import table_for

__all__ = [
    "COMMON",
    "CORRUPTIONS",
    "EXTRA",
    "PERTURBATIONS",
    "SequenceBatches",
    "change_of",
    "corrupt",
    "sequence",
    "table_for",
]
