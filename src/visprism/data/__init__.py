"""Data: labelled images by name, and the batches that a model takes."""

from visprism.data import (  # noqa: F401 (they register)
    cifar,
    cue_conflict,
    folder,
    hub,
    parquet,
    shapes,
    stored,
)
from visprism.data.batches import Batches, batches, framing
from visprism.data.image_set import ImageSet
from visprism.data.load import load_data
from visprism.data.memory import default_preprocessing, in_memory
from visprism.data.sets import DATA

__all__ = [
    "DATA",
    "Batches",
    "ImageSet",
    "batches",
    "default_preprocessing",
    "framing",
    "in_memory",
    "load_data",
]
