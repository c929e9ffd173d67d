"""Data: labeled images by name, and the batches that a model takes."""

from visprism.data import (  # noqa: F401 (they register)
    cifar,
    cue_conflict,
    folder,
    hub,
    imagenet,
    parquet,
    shapes,
    stored,
)
from visprism.data.augmentation import STRONG, STRONG_LARGE, WEAK, Augmentation
from visprism.data.batches import Batches, batches, framing
from visprism.data.dataset import image_set
from visprism.data.feed import Feed, LoaderFeed, MemoryFeed, loader_feed, memory_feed
from visprism.data.image_set import DATA, ImageSet
from visprism.data.memory import default_preprocessing, in_memory
from visprism.data.open_data import load_data
from visprism.data.statistics import statistics
from visprism.data.subsets import held_out, stratified

__all__ = [
    "DATA",
    "STRONG",
    "STRONG_LARGE",
    "WEAK",
    "Augmentation",
    "Batches",
    "Feed",
    "ImageSet",
    "LoaderFeed",
    "MemoryFeed",
    "batches",
    "default_preprocessing",
    "framing",
    "held_out",
    "image_set",
    "in_memory",
    "load_data",
    "loader_feed",
    "memory_feed",
    "statistics",
    "stratified",
]
