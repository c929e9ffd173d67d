"""Images: labeled images by name, and the batches that a model takes."""

from visprism.images import (  # noqa: F401 (they register)
    folders,
    shapes,
    stored,
    tables,
)
from visprism.images.augmentation import STRONG, STRONG_LARGE, WEAK, Augmentation
from visprism.images.batches import Batches, batches, fixed_augmentation
from visprism.images.image_set import DATA, ImageSet, held_out, statistics, stratified
from visprism.images.open_data import image_set, load_data
from visprism.images.pixels import in_memory
from visprism.images.training_batches import Feed, loader_feed, memory_feed

__all__ = [
    "DATA",
    "STRONG",
    "STRONG_LARGE",
    "WEAK",
    "Augmentation",
    "Batches",
    "Feed",
    "ImageSet",
    "batches",
    "fixed_augmentation",
    "held_out",
    "image_set",
    "in_memory",
    "load_data",
    "loader_feed",
    "memory_feed",
    "statistics",
    "stratified",
]
