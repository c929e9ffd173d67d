"""Laws of image sets of torch data sets."""

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from visprism import image_set


class Pictures(Dataset):
    """Pictures of one gray level each, their index; the class is the index modulo 3."""

    def __init__(self, *, labels=True, transform=None):
        self.reads, self.labels, self.transform = 0, labels, transform

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if not 0 <= i < 12:
            raise IndexError(i)
        self.reads += 1
        picture = Image.new("L", (4, 5), i)
        picture = self.transform(picture) if self.transform else picture
        return (picture, i % 3) if self.labels else picture


def levels(images):
    return [picture.getpixel((0, 0))[0] for picture in images.read(range(len(images)))]


def test_images_and_classes_are_those_of_the_data_set():
    images = image_set(Pictures(), name="gray")
    assert levels(images) == list(range(12))
    assert images.targets.tolist() == [0, 1, 2] * 4
    assert images.class_names == ("0", "1", "2")
    assert images.name == "gray"
    assert {picture.mode for picture in images.read([0, 5])} == {"RGB"}


def test_stated_targets_are_read_without_images_also_of_a_subset():
    pictures = Pictures()
    pictures.targets = torch.arange(12) % 3
    pictures.classes = ["x", "y", "z"]
    images = image_set(Subset(Subset(pictures, [7, 3, 5, 0]), [2, 0]))
    assert images.targets.tolist() == [2, 1]
    assert images.class_names == ("x", "y", "z")
    assert pictures.reads == 1  # the first item, for its type
    assert levels(images) == [5, 7]


def test_a_limit_is_balanced_and_a_part_of_a_larger_one():
    larger, smaller = (image_set(Pictures(), limit=limit, seed=3) for limit in (9, 6))
    assert np.bincount(smaller.targets).tolist() == [2, 2, 2]
    assert set(levels(smaller)) < set(levels(larger))
