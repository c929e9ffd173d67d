"""Laws of pictures of images that only one model classifies correctly."""

import numpy as np
import pytest
import torch

from visprism.analyses.predictions.error_consistency import differing_pictures
from visprism.passes.outcomes import Outcomes
from visprism.analyses.predictions.error_consistency import error_consistency

NAMES = ("disk", "star")


def outcomes(correct):
    correct = np.array(correct, dtype=bool)
    n = len(correct)
    target = np.arange(n) % 2
    return Outcomes(
        target=target,
        predicted=np.where(correct, target, 1 - target),
        correct=correct,
        top5=correct,
        confidence=np.ones(n),
        nll=np.zeros(n),
        brier=np.zeros(n),
        classes=2,
    )


def shown(first, second, size=(2, 3), channels=3):
    positions = np.arange(len(first))[::-1].copy()
    differing = error_consistency(
        outcomes(first), outcomes(second), class_names=NAMES, positions=positions
    )
    generator = torch.Generator().manual_seed(0)
    shape = (len(first), channels, *size)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return differing, pixels, differing_pictures(differing, pixels.__getitem__)


def test_pictures_have_the_pixels_the_classes_and_the_predictions_of_their_images():
    differing, pixels, result = shown([1, 0, 1, 1], [1, 1, 0, 1])
    assert result.image.tolist() == [1, 2]
    assert differing.position.tolist() == [2, 1]
    assert result.target.tolist() == ["star", "disk"]
    assert result.first.tolist() == ["disk", "disk"]
    assert result.second.tolist() == ["star", "star"]
    for index, picture in zip(result.image, result.pictures(), strict=True):
        np.testing.assert_array_equal(picture, pixels[index].permute(1, 2, 0))


def test_large_pictures_are_means_of_areas_and_gray_ones_have_three_equal_channels():
    _, pixels, result = shown([1], [0], size=(96, 48), channels=1)
    (picture,) = result.pictures()
    assert picture.shape == (48, 24, 3)
    areas = pixels[0, 0].float().reshape(48, 2, 24, 2).mean((1, 3)).round()
    for channel in range(3):
        np.testing.assert_allclose(picture[..., channel], areas, atol=1)  # ties of rounding


@pytest.mark.parametrize(("first", "second", "counts"), [(40, 40, (12, 12)), (40, 3, (21, 3))])
def test_at_most_24_pictures_of_both_models_in_turn(first, second, counts):
    correct = np.array([1] * first + [0] * second)
    differing, _, result = shown(correct, 1 - correct)
    assert len(differing) == first + second == result.images
    of_first = int((result.image < first).sum())
    assert (of_first, len(result) - of_first) == counts
    assert (np.diff(result.image) > 0).all()


def test_classes_without_names_are_numbers():
    differing = error_consistency(outcomes([1, 1]), outcomes([1, 0]))
    assert differing.target.tolist() == ["1"]
    assert differing.second.tolist() == ["0"]
    assert differing.position.tolist() == [-1]
