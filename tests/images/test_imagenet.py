"""Laws of reading ImageNet (src/visprism/images/imagenet.py)."""

import pytest
from PIL import Image
from timm.data import ImageNetInfo

from visprism import InputError, load_data


def test_a_folder_of_its_classes_is_read_in_the_order_of_identifiers(tmp_path):
    for i, identifier in enumerate(ImageNetInfo().label_names()):
        for split in ("train", "val"):
            (tmp_path / split / identifier).mkdir(parents=True)
        if i in (0, 283, 999):
            image = Image.new("RGB", (4, 4), (i % 256, 0, 0))
            image.save(tmp_path / "val" / identifier / "x.JPEG", quality=95)
    images = load_data(f"imagenet:{tmp_path}")
    assert images.split == "val"
    assert images.source == f"imagenet:{tmp_path}"
    assert images.targets.tolist() == [0, 283, 999]
    assert images.num_classes == 1000
    assert images.class_names[0] == "tench, Tinca tinca"
    assert images.class_names[283] == "Persian cat"


def test_other_folders_are_refused(folder):
    with pytest.raises(
        InputError,
        match=r"the 1000 classes n01440764, .* got 2 \(cats, dogs",
    ):
        load_data(f"imagenet:{folder}")
