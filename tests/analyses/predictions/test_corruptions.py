"""Metrics on corrupted images, and errors relative to those of AlexNet."""

import numpy as np
import pytest
import torch
from classifiers_by_hand import Brightest, colors
from results_by_hand.base import complete

from visprism import InputError, Provenance, calibration, predict, robustness
from visprism.analyses.predictions.corruptions import CLEAN
from visprism.estimates.corruption_error import ALEXNET
from visprism.estimates.estimated import Estimated
from visprism.results import CorruptedMetrics

MODEL = Brightest().eval()


def measured(accuracies, *, size=32, classes=10):
    """Results with this accuracy under each condition."""
    names, severities = zip(*accuracies, strict=True)
    return complete(
        CorruptedMetrics,
        corruption=np.array(names),
        severity=np.array(severities),
        accuracy=Estimated(list(accuracies.values())),
        classes=classes,
        provenance=Provenance(image_shape=(3, size, size), images=50),
    )


@pytest.fixture
def data():
    targets = torch.tensor([0, 1, 2, 0])
    return {
        CLEAN: [(colors(0, 1, 2, 0), targets)],
        ("fog", 1): [(colors(0, 1, 2, 1), targets)],
        ("fog", 5): [(colors(1, 1, 0, 1, level=0.5), targets)],
    }


def test_each_condition_has_the_metrics_of_its_own_images(data):
    metrics = robustness(MODEL, data)
    assert metrics.accuracy.tolist() == [1, 0.75, 0.25]
    for row, ((name, severity), batches) in enumerate(data.items()):
        assert (metrics.corruption[row], metrics.severity[row]) == (name, severity)
        alone = calibration(predict(MODEL, batches))
        assert metrics.ece[row] == alone.ece
        for metric in ("accuracy", "nll", "debiased_ece"):
            value, expected = getattr(metrics, metric)[row], getattr(alone, metric)
            np.testing.assert_array_equal(
                (value, value.low, value.high), (expected, expected.low, expected.high)
            )


def test_the_mean_error_is_that_over_corruptions_and_severities_without_clean_images():
    conditions = {CLEAN: 1.0, ("fog", 1): 0.9, ("fog", 2): 0.7}
    conditions |= {("snow", 1): 0.5, ("frost", 1): 0.1}
    errors = measured(conditions).corruption_errors()
    assert errors.corruption.tolist() == ["fog", "snow", "frost"]
    np.testing.assert_allclose(errors.error, [0.2, 0.5, 0.9])
    assert errors.mean_error == pytest.approx(1.6 / 3)
    assert errors.clean_error == 0
    assert "3 corruptions, severities 1, 2" in str(errors.findings()[0])
    assert np.isnan(errors.mce)
    assert np.isnan(errors.relative).all()


def test_the_published_errors_have_the_published_mean_of_alexnet():
    # Table 1 of the paper, in whole percent.
    rounded = [89, 89, 92, 82, 83, 79, 80, 87, 83, 82, 56, 85, 65, 72, 61]
    assert [round(100 * e) for e in ALEXNET.values()] == rounded


def test_the_mce_needs_all_severities_and_all_corruptions_of_the_reference():
    conditions = {(name, s): 0.5 for name in ALEXNET for s in range(1, 6)}
    del conditions["fog", 3]
    errors = measured(conditions).corruption_errors(reference=ALEXNET)
    assert np.isnan(errors.relative[errors.corruption == "fog"]).all()
    assert np.isnan(errors.mce)
    assert np.isfinite(errors.mean_error)
    few = {key: value for key, value in conditions.items() if key[0] != "fog"}
    assert np.isnan(measured(few).corruption_errors(reference=ALEXNET).mce)
    extra = conditions | {("fog", 3): 0.5} | {("spatter", s): 0.0 for s in range(1, 6)}
    errors = measured(extra).corruption_errors(reference=ALEXNET)
    assert errors.mce == pytest.approx(np.mean([0.5 / e for e in ALEXNET.values()]))


@pytest.mark.parametrize(
    ("size", "classes", "given"), [(224, 1000, True), (160, 1000, False), (224, 100, False)]
)
def test_the_mce_is_given_for_224_pixels_and_1000_classes_only(size, classes, given):
    conditions = {(name, s): 1 - e for name, e in ALEXNET.items() for s in range(1, 6)}
    errors = measured(conditions, size=size, classes=classes).corruption_errors()
    assert errors.mce == pytest.approx(1 if given else np.nan, nan_ok=True)
    assert np.isfinite(errors.relative).all() == given
    assert len(errors.answers()) == given


def shifted(targets, number):
    """Images of these classes, the first `number` of which show the next class."""
    return colors(*((targets + (torch.arange(len(targets)) < number)) % 3).tolist())


def test_the_drop_is_paired_by_image():
    # 100 images, 10 errors; under each condition the same six others are lost, none is gained.
    targets = torch.arange(100) % 3
    clean = [(shifted(targets, 10), targets)]
    corrupted = [(shifted(targets, 16), targets)]
    conditions = {(name, 1): corrupted for name in ("fog", "snow")}
    result = robustness(MODEL, {CLEAN: clean} | conditions)
    rows = result.select(result.corruption == "fog")
    np.testing.assert_allclose(rows.change, -0.06)
    # Bonett and Price (2012), by hand: p = 1 / 102, q = 7 / 102.
    p, q = 1 / 102, 7 / 102
    half = 1.959964 * np.sqrt((p + q - (p - q) ** 2) / 102)
    np.testing.assert_allclose(rows.change.low, p - q - half)
    np.testing.assert_allclose(rows.change.high, p - q + half)
    assert (rows.change.high < 0).all()
    np.testing.assert_allclose(result.nll_change[1:], result.nll[1:] - result.nll[0])
    assert result.mean_drop == pytest.approx(0.06)
    assert result.mean_drop.low == pytest.approx(q - p - half)


def test_values_of_images_are_means_over_conditions(data):
    result = robustness(MODEL, data)
    assert result.mean_accuracy.by_unit.tolist() == [0.5, 1, 0.5, 0]
    answers = {answer.quantity: answer.value for answer in result.answers()}
    assert answers == {
        "mean accuracy on corrupted images": 0.5,
        "mean accuracy drop from clean images": 0.5,
    }


def test_different_images_under_the_conditions_are_refused():
    targets = torch.tensor([0, 1, 2])
    data = {CLEAN: [(colors(0, 1, 2), targets)], ("fog", 1): [(colors(0, 1), targets[:2])]}
    with pytest.raises(InputError, match="the same images in the same order"):
        robustness(MODEL, data)
