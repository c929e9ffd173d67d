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
from visprism.data.augmentation import STRONG, STRONG_LARGE, WEAK, Augmentation
from visprism.data.batches import Batches, batches, framing
from visprism.data.feed import Feed, MemoryFeed, memory_feed
from visprism.data.image_set import ImageSet
from visprism.data.load import load_data
from visprism.data.memory import default_preprocessing, in_memory
from visprism.data.sets import DATA

__all__ = [
    "DATA",
    "STRONG",
    "STRONG_LARGE",
    "WEAK",
    "Augmentation",
    "Batches",
    "Feed",
    "ImageSet",
    "MemoryFeed",
    "batches",
    "default_preprocessing",
    "framing",
    "in_memory",
    "load_data",
    "memory_feed",
]
