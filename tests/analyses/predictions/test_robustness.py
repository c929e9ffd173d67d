"""Tests of robustness, corruption errors and stability (src/visprism/measure/outputs)."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from visprism import InputError, Provenance, Result, calibration, predict, robustness, stability
from visprism.analyses.predictions.corruptions import ALEXNET, CLEAN, Robustness


class Brightest(nn.Module):
    """Predicts the channel with the highest mean, more confidently the more it leads."""

    def forward(self, x):
        return 4 * x.mean((2, 3))


@pytest.fixture
def model():
    return Brightest().eval()


def colors(*channels, level=1.0):
    """One image for each channel, which is bright in it."""
    images = torch.zeros(len(channels), 3, 4, 4)
    images[range(len(channels)), channels] = level
    return images


def measured(accuracies, *, size=32, classes=10):
    """A `Robustness` with this accuracy under each condition."""
    names, severities = zip(*accuracies, strict=True)
    number = len(names)
    return Robustness(
        corruption=np.tile(names, 2),
        severity=np.tile(severities, 2),
        metric=np.repeat(["accuracy", "ece"], number),
        cutoff=np.full(2 * number, np.nan),
        value=np.append(list(accuracies.values()), np.full(number, 0.125)),
        low=np.zeros(2 * number),
        high=np.ones(2 * number),
        change=np.full(2 * number, np.nan),
        change_low=np.full(2 * number, np.nan),
        change_high=np.full(2 * number, np.nan),
        classes=classes,
        provenance=Provenance(image_shape=(3, size, size), images=50),
    )


# Corruptions.


def test_each_condition_has_the_metrics_of_its_own_images(model):
    targets = torch.tensor([0, 1, 2, 0])
    data = {
        CLEAN: [(colors(0, 1, 2, 0), targets)],
        ("fog", 1): [(colors(0, 1, 2, 1), targets)],
        ("fog", 5): [(colors(1, 2, 0, 1, level=0.5), targets)],
    }
    metrics, _ = robustness(model, data)
    assert metrics.of("accuracy", *CLEAN) == 1
    assert metrics.of("accuracy", "fog", 1) == 0.75
    assert metrics.of("accuracy", "fog", 5) == 0
    for condition, batches in data.items():
        alone = calibration(predict(model, batches))
        rows = metrics.select(
            (metrics.corruption == condition[0]) & (metrics.severity == condition[1])
        )
        for name in ("metric", "cutoff", "value", "low", "high"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(alone, name))


def test_the_mean_error_is_that_over_corruptions_and_severities_without_clean_images():
    conditions = {CLEAN: 1.0, ("fog", 1): 0.9, ("fog", 2): 0.7, ("snow", 1): 0.5}
    errors = measured(conditions).corruption_errors()
    assert errors.corruption.tolist() == ["fog", "snow"]
    np.testing.assert_allclose(errors.error, [0.2, 0.5])
    assert errors.mean_error == pytest.approx(0.35)
    assert errors.clean_error == 0
    assert np.isnan(errors.mce)
    assert np.isnan(errors.relative).all()


def test_alexnet_has_an_mce_of_1():
    conditions = {(name, s): 1 - e for name, e in ALEXNET.items() for s in range(1, 6)}
    errors = measured(conditions).corruption_errors(reference=ALEXNET)
    np.testing.assert_allclose(errors.relative, 1)
    assert errors.mce == pytest.approx(1)


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
    ("size", "classes", "given"),
    [(224, 1000, True), (160, 1000, False), (384, 1000, False), (224, 100, False)],
)
def test_the_mce_is_given_for_224_pixels_and_1000_classes_only(size, classes, given):
    conditions = {(name, s): 1 - e for name, e in ALEXNET.items() for s in range(1, 6)}
    errors = measured(conditions, size=size, classes=classes).corruption_errors()
    assert np.isfinite(errors.mce) == given
    *_, last = (finding.text for finding in errors.findings())
    assert last == (
        "mCE 100.0% relative to the reference errors"
        if given
        else "mCE not given: AlexNet's errors are those of 224x224 pixels and 1000 classes"
    )


def test_errors_are_reported_with_the_severities_that_were_measured():
    conditions = {CLEAN: 1.0, ("fog", 1): 0.9, ("fog", 3): 0.9, ("snow", 3): 0.5}
    mean, highest, _ = measured(conditions).corruption_errors().findings()
    assert mean.text == (
        "mean error rate 30.0% over 2 corruptions at severities 1, 3, 0.0% on clean images "
        "(50 images)"
    )
    assert highest.text == "highest of 2: snow, 50.0%, selected and without an interval"
    one = measured({("fog", 3): 0.9}).corruption_errors().findings()[0].text
    assert one == "mean error rate 10.0% over 1 corruption at severity 3 (50 images)"


def shifted(targets, number):
    """Images of these classes, the first `number` of which show the next class."""
    return colors(*((targets + (torch.arange(len(targets)) < number)) % 3).tolist())


def test_the_drop_is_paired_by_image(model):
    # 100 images, 10 errors; under each of 45 conditions the same six others are lost and none
    # is gained: an exact paired test of one condition has p = 2 / 2^6.
    targets = torch.arange(100) % 3
    clean = [(shifted(targets, 10), targets)]
    corrupted = [(shifted(targets, 16), targets)]
    conditions = {(f"fog{i}", s): corrupted for i in range(9) for s in range(1, 6)}
    result, _ = robustness(model, {CLEAN: clean} | conditions)
    rows = result.select((result.metric == "accuracy") & (result.corruption == "fog0"))
    np.testing.assert_allclose(rows.change, -0.06)
    # Bonett and Price (2012), by hand: p = 1 / 102, q = 7 / 102.
    p, q = 1 / 102, 7 / 102
    half = 1.959964 * np.sqrt((p + q - (p - q) ** 2) / 102)
    np.testing.assert_allclose(rows.change_low, p - q - half)
    np.testing.assert_allclose(rows.change_high, p - q + half)
    assert (rows.change_high < 0).all()
    assert result.mean_drop == pytest.approx(0.06)
    assert result.mean_drop_low == pytest.approx(q - p - half)
    mean, calibration = (finding.text for finding in result.findings())  # no lowest of equals
    assert calibration.startswith("mean debiased ECE on corrupted images")
    assert mean.startswith("mean accuracy on corrupted images 84.0% [")
    assert "of 9 corruptions at severities 1, 2, 3, 4, 5 (100 images); drop" in mean
    assert "drop from clean images 6.0 percentage points [" in mean
    assert "not significant" not in mean


def test_the_lowest_accuracy_says_that_it_is_selected(model):
    targets = torch.arange(100) % 3
    data = {
        CLEAN: [(shifted(targets, 10), targets)],
        ("fog", 1): [(shifted(targets, 11), targets)],
        ("fog", 2): [(shifted(targets, 16), targets)],
    }
    result, _ = robustness(model, data)
    (lowest,) = (f.text for f in result.findings() if f.text.startswith("lowest"))
    assert lowest.startswith("lowest accuracy of 2 conditions: fog at severity 2, 84.0% [")
    assert "paired drop 6.0 percentage points [" in lowest
    assert lowest.endswith(", intervals not adjusted for this selection")


def test_a_drop_within_its_paired_interval_is_not_significant(model):
    targets = torch.arange(100) % 3
    data = {
        CLEAN: [(shifted(targets, 10), targets)],
        ("fog", 3): [(shifted(targets, 11), targets)],
    }
    result, _ = robustness(model, data)
    assert result.findings()[0].text.endswith("paired by image, not significant")


def test_values_of_images_are_means_over_conditions(model):
    targets = torch.tensor([0, 1, 2, 0])
    data = {
        CLEAN: [(colors(0, 1, 2, 0), targets)],
        ("fog", 1): [(colors(0, 1, 2, 1), targets)],
        ("fog", 5): [(colors(1, 1, 0, 1), targets)],
    }
    result, per_image = robustness(model, data)
    images, accuracy = per_image.values_of("mean accuracy on corrupted images")
    assert images.tolist() == [0, 1, 2, 3]
    assert accuracy.tolist() == [0.5, 1, 0.5, 0]
    assert result.mean_accuracy == 0.5
    _, nll = per_image.values_of("mean NLL on corrupted images")
    expected = np.mean([result.of("nll", "fog", 1), result.of("nll", "fog", 5)])
    assert nll.mean() == pytest.approx(expected)
    answers = {answer.quantity: answer.value for answer in result.answers()}
    assert answers == {
        "mean accuracy on corrupted images": 0.5,
        "mean accuracy drop from clean images": 0.5,
    }


def test_different_images_under_the_conditions_have_no_paired_drop(model):
    targets = torch.tensor([0, 1, 2])
    data = {
        CLEAN: [(colors(0, 1, 2), targets)],
        ("fog", 1): [(colors(0, 1), targets[:2])],
    }
    result, per_image = robustness(model, data)
    assert np.isnan(result.change).all()
    assert np.isnan(result.mean_drop)
    assert per_image.values_of("mean accuracy on corrupted images")[1].tolist() == [1, 1]


# Sequences.


def test_flips_count_against_the_frame_before_and_of_noise_against_the_first(model):
    frames = torch.stack([colors(0, 0, 1, 1, 0), colors(2, 2, 2, 2, 2)])
    result, _ = stability(model, {"rotate": [frames], "shot_noise": [frames]})
    np.testing.assert_allclose(result.flip_rate, [(2 / 4 + 0) / 2, (2 / 4 + 0) / 2])
    np.testing.assert_allclose(result.consistency, [3 / 4, 3 / 4])
    back = torch.stack([colors(0, 1, 0, 1, 0)])
    result, per_image = stability(model, {"rotate": [back], "shot_noise": [back]})
    np.testing.assert_allclose(result.flip_rate, [1, 1 / 2])
    np.testing.assert_allclose(result.consistency, [0, 0])
    assert result.mean_flip_rate == 0.75
    assert np.isnan(result.flip_low).all()  # of one image
    assert per_image.value.tolist() == [0.75]
    assert result.provenance.images == 1
    assert [finding.text for finding in result.findings()] == [
        "mean flip rate 75.00% over 2 perturbations (1 image)",
        "highest of 2: rotate, 100.00% over 1 image",
    ]


def test_the_interval_is_over_images_not_over_frames(model):
    # Half of the images flip in every frame: the deviation of their mean is 0.5 / sqrt(n - 1).
    frames = torch.stack([colors(0, 1, 0, 1), colors(2, 2, 2, 2)] * 50)
    result, _ = stability(model, {"tilt": frames.split(30)})
    half = stats.t.ppf(0.975, 99) * 0.5 / np.sqrt(99)
    assert result.flip_low[0] == pytest.approx(0.5 - half)
    assert result.flip_high[0] == pytest.approx(0.5 + half)
    assert result.mean_flip_low == result.flip_low[0]


def test_without_any_flip_the_interval_does_not_shrink_to_a_point(model):
    frames = torch.stack([colors(1, 1, 1)] * 40)
    result, _ = stability(model, {"tilt": [frames]})
    expected = stats.binomtest(0, 40).proportion_ci(method="exact")
    assert (result.flip_low[0], result.flip_high[0]) == pytest.approx((0, expected.high))


# Contracts and errors.


def test_results_are_saved_and_read(tmp_path):
    errors = measured({("fog", 1): 0.9}).corruption_errors()
    errors.save(tmp_path / "a.npz")
    assert Result.load(tmp_path / "a.npz").mean_error == errors.mean_error


def test_nothing_to_measure_is_refused(model):
    with pytest.raises(
        InputError, match="corrupted must hold at least one condition, got none"
    ):
        robustness(model, {})
    with pytest.raises(
        InputError, match="must hold at least one corruption, got clean images only"
    ):
        measured({CLEAN: 0.5}).corruption_errors()
    with pytest.raises(
        InputError, match="must have been measured, got 'ece' of 'fog' at severity 2"
    ):
        measured({("fog", 1): 0.5}).of("ece", "fog", 2)
    with pytest.raises(
        InputError, match="sequences must hold at least one perturbation, got none"
    ):
        stability(model, {})


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 1, 3, 4, 4)])
def test_sequences_that_are_no_frames_are_refused(model, shape):
    with pytest.raises(
        InputError, match=r"sequences must be frames \(images, frames, C, H, W\)"
    ):
        stability(model, {"tilt": [torch.zeros(shape)]})


def test_sequences_of_different_lengths_are_refused(model):
    with pytest.raises(InputError, match="must have one number of frames, got 2 and 3"):
        stability(model, {"tilt": [torch.zeros(1, n, 3, 4, 4) for n in (2, 3)]})
