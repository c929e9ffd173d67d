"""Corruptions: the 15 + 4 of ImageNet-C and the sequences of ImageNet-P, made on the fly."""

from visprism.data.corruptions import (  # noqa: F401 (each registers its corruptions)
    blur,
    digital,
    elastic,
    glass,
    noise,
    spatter,
    weather,
)
from visprism.data.corruptions.corrupt import change_of, corrupt
from visprism.data.corruptions.registry import COMMON, CORRUPTIONS, EXTRA
from visprism.data.corruptions.sequences import PERTURBATIONS, SequenceBatches, sequence
from visprism.data.corruptions.severities import table_for

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
