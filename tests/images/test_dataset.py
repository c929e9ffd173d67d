"""Laws of image sets of torch data sets."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from visprism import InputError, image_set
from visprism.images.images import ordered


class Pictures(Dataset):
    """Pictures of one gray level each, their index; the class is the index modulo 3."""

    def __init__(self, *, label=None, transform=None):
        self.reads, self.label, self.transform = 0, label, transform

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if not 0 <= i < 12:
            raise IndexError(i)
        self.reads += 1
        picture = Image.new("L", (4, 5), i)
        picture = self.transform(picture) if self.transform else picture
        return picture, i % 3 if self.label is None else self.label


def levels(images):
    return [picture.getpixel((0, 0))[0] for picture in images.read(range(len(images)))]


def test_images_and_classes_are_those_of_the_data_set():
    images = image_set(Pictures(), name="gray")
    assert levels(images) == list(range(12))
    assert images.targets.tolist() == [0, 1, 2] * 4
    assert images.class_names == ()
    assert images.num_classes == 3
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


def test_a_limit_is_a_part_of_a_larger_one_and_stratified_where_classes_are_stated():
    pictures = Pictures()
    larger, smaller = (image_set(pictures, limit=limit, seed=3) for limit in (9, 6))
    assert pictures.reads == 2 + 9 + 6  # no image is decoded that is not selected
    assert set(levels(smaller)) < set(levels(larger))
    assert smaller.targets.tolist() == [level % 3 for level in levels(smaller)]
    assert smaller.positions.tolist() == levels(smaller)
    pictures.targets = [i % 3 for i in range(12)]
    part = image_set(pictures, limit=6, seed=3)
    assert np.bincount(part.targets).tolist() == [2, 2, 2]
    with pytest.raises(InputError, match="limit must be positive, got 0"):
        image_set(pictures, limit=0)


def test_classes_are_what_the_items_hold():
    pictures = Pictures()
    pictures.targets, pictures.target_transform = [7] * 12, lambda label: label
    assert image_set(pictures).targets.tolist() == [0, 1, 2] * 4
    with pytest.raises(InputError, match=r"one class index per image, got 0\.3"):
        image_set(Pictures(label=0.3))


def test_names_of_classes_are_those_of_a_list():
    pictures = Pictures()
    pictures.classes = [("tench", "Tinca tinca"), ("dog",), 3]
    assert image_set(pictures).class_names == ("tench, Tinca tinca", "dog", "3")
    pictures.classes = 2  # as some data sets state their number
    assert image_set(pictures).class_names == ()


def test_other_pixels_are_other_images():
    brighter = Pictures(transform=lambda picture: picture.point(lambda x: x + 1))
    one, same, other = (
        ordered(image_set(p)).fingerprint() for p in (Pictures(), Pictures(), brighter)
    )
    assert one == same != other
