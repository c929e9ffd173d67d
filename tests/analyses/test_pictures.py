"""Laws of the pictures that stand beside maps."""

import numpy as np
import pytest
import torch
from maps import small_vit
from measurements import DATA, PREPROCESSING, SIDE
from small_models import seeded

from visprism import ANALYSES, DataOptions, Run
from visprism.analyses.pictures import picture_columns
from visprism.kit.inputs import images_of, subject_of
from visprism.results import ImagePictures


@pytest.mark.parametrize("name", ["attention-maps", "attribution", "patch-pca"])
def test_maps_have_the_images_that_the_model_sees(name):
    model = seeded(lambda: small_vit(img_size=SIDE, patch_size=4, num_classes=10))
    images = images_of(DATA, DataOptions(limit=8), side=SIDE)
    subject = subject_of(model, images, preprocessing=PREPROCESSING)
    results = ANALYSES[name]().measure(subject, Run())
    (pictures,) = (r for r in results if isinstance(r, ImagePictures))
    assert pictures.image.tolist() == list(range(1 if name == "attention-maps" else 4))
    seen = next(iter(subject.batches()))[0] * 0.25 + 0.5
    for picture, expected in zip(pictures.pictures(), seen, strict=False):
        np.testing.assert_array_equal(picture, (expected * 255).round().permute(1, 2, 0))


@pytest.mark.parametrize(("channels", "size"), [(3, (96, 48)), (1, (60, 96))])
def test_large_pictures_are_reduced_and_gray_ones_have_three_equal_channels(channels, size):
    height, width = (3 * side for side in size)
    image = torch.arange(channels)[:, None, None].expand(-1, height, width) * 90 + 7
    made = picture_columns([image.to(torch.uint8)], 96)
    assert (made["height"][0], made["width"][0]) == size
    color = bytes(7 + 90 * c for c in ([0, 1, 2] if channels == 3 else [0, 0, 0])).hex()
    assert made["pixels"][0] == color * (size[0] * size[1])
