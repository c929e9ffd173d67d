"""Error consistency of two models, differences of calibration, and pictures of their errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from classifiers_by_hand import outcomes_by_hand

from visprism.analyses.predictions.error_consistency import (
    differing_pictures,
    error_consistency,
    kappa_interval,
)


def outcomes(correct, confidence=0.9, name=""):
    return outcomes_by_hand(confidence, correct, name)


def test_kappa_by_hand():
    # 50 images: both correct on 25, both wrong on 10, one of them alone on 10 and on 5.
    first = outcomes([1, 1, 1, 1, 1, 0, 0, 1, 1, 0] * 5, name="resnet")
    second = outcomes([1, 1, 1, 1, 1, 0, 0, 0, 0, 1] * 5, name="vit")
    result = error_consistency(first, second)
    # They agree on 0.7; models with these accuracies would agree on 0.7 * 0.6 + 0.3 * 0.4.
    assert result.kappa == pytest.approx((0.7 - 0.54) / 0.46)
    assert result.only_one == pytest.approx(15 / 50)
    assert result.image[:3].tolist() == [7, 8, 9]
    assert result.only_first[:3].tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ([1] * 50, [1] * 43 + [0] * 7, "a model is correct or wrong on fewer than 5"),
        ([1] * 50, [1] * 50, "both models are correct, or both are wrong, on all images"),
    ],
)
def test_a_kappa_without_an_interval_has_the_reason(first, second, reason):
    result = error_consistency(outcomes(first), outcomes(second))
    assert np.isnan(result.kappa) == ("both" in reason)
    assert reason in result.findings()[1].text
    _, answer = result.answers()
    assert answer.missing.startswith(reason)


def test_the_interval_of_kappa_is_that_of_the_counts():
    a, b = np.random.default_rng(1).random((2, 80)) < 0.7
    counts = np.array([[np.sum((a == i) & (b == j)) for j in (0, 1)] for i in (0, 1)])
    result = error_consistency(outcomes(a), outcomes(b))
    assert (result.kappa.low, result.kappa.high) == kappa_interval(counts.astype(float))


def test_pictures_have_the_pixels_the_classes_and_the_predictions_of_their_images():
    target = np.arange(4) % 2
    given = [outcomes(correct) for correct in ([1, 0, 1, 1], [1, 1, 0, 1])]
    pair = [
        replace(o, target=target, predicted=np.where(o.correct, target, 1 - target))
        for o in given
    ]
    positions = np.arange(4)[::-1].copy()
    differing = error_consistency(*pair, class_names=("disk", "star"), positions=positions)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (4, 3, 2, 3), dtype=torch.uint8, generator=generator)
    result = differing_pictures(differing, pixels.__getitem__)
    assert result.image.tolist() == [1, 2]
    assert differing.position.tolist() == [2, 1]
    assert result.target.tolist() == ["star", "disk"]
    assert result.first.tolist() == ["disk", "disk"]
    assert result.second.tolist() == ["star", "star"]
    for index, picture in zip(result.image, result.pictures(), strict=True):
        np.testing.assert_array_equal(picture, pixels[index].permute(1, 2, 0))
    many = error_consistency(outcomes([1] * 40 + [0] * 3), outcomes([0] * 40 + [1] * 3))
    first = differing_pictures(many, lambda _: pixels[0]).image < 40  # both models in turn
    assert (sum(first), len(first)) == (21, 24)
