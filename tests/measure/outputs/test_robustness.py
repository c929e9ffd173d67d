"""Laws of robustness, corruption errors and stability (src/visprism/measure/outputs)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from visprism.core.errors import InputError
from visprism.measure.outputs import (
    corruption_errors,
    predict,
    robustness,
    stability,
    uncertainty,
)
from visprism.results.base import Result
from visprism.results.robustness import ALEXNET, CLEAN, Robustness


class Brightest(nn.Module):
    """Names the channel with the highest mean, the more surely the more it is ahead."""

    def forward(self, x):
        return 4 * x.mean((2, 3))


@pytest.fixture
def model():
    return Brightest().eval()


def colours(*channels, level=1.0):
    """One image for each channel, which is bright in it."""
    images = torch.zeros(len(channels), 3, 4, 4)
    images[range(len(channels)), channels] = level
    return images


def measured(accuracies):
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
    )


# Corruptions.


def test_each_condition_has_the_metrics_of_its_own_images(model):
    targets = torch.tensor([0, 1, 2, 0])
    data = {
        CLEAN: [(colours(0, 1, 2, 0), targets)],
        ("fog", 1): [(colours(0, 1, 2, 1), targets)],
        ("fog", 5): [(colours(1, 2, 0, 1, level=0.5), targets)],
    }
    found = robustness(model, data, resamples=20)
    assert found.of("accuracy", *CLEAN) == 1
    assert found.of("accuracy", "fog", 1) == 0.75
    assert found.of("accuracy", "fog", 5) == 0
    for condition, batches in data.items():
        alone = uncertainty(predict(model, batches), resamples=20)
        rows = found.select(
            (found.corruption == condition[0]) & (found.severity == condition[1])
        )
        for name in ("metric", "cutoff", "value", "low", "high"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(alone, name))


def test_the_mean_error_is_that_over_corruptions_and_severities_without_clean_images():
    found = corruption_errors(
        measured({CLEAN: 1.0, ("fog", 1): 0.9, ("fog", 2): 0.7, ("snow", 1): 0.5})
    )
    assert found.corruption.tolist() == ["fog", "snow"]
    np.testing.assert_allclose(found.error, [0.2, 0.5])
    assert found.mean_error == pytest.approx(0.35)
    assert found.clean_error == 0
    assert np.isnan(found.mce)
    assert np.isnan(found.relative).all()


def test_alexnet_has_an_mce_of_1():
    conditions = {(name, s): 1 - e for name, e in ALEXNET.items() for s in range(1, 6)}
    found = corruption_errors(measured(conditions), reference=ALEXNET)
    np.testing.assert_allclose(found.relative, 1)
    assert found.mce == pytest.approx(1)


def test_the_published_errors_have_the_published_mean_of_alexnet():
    # Table 1 of the paper, in whole percent.
    rounded = [89, 89, 92, 82, 83, 79, 80, 87, 83, 82, 56, 85, 65, 72, 61]
    assert [round(100 * e) for e in ALEXNET.values()] == rounded


def test_an_mce_wants_all_severities_and_all_corruptions_of_the_reference():
    conditions = {(name, s): 0.5 for name in ALEXNET for s in range(1, 6)}
    del conditions["fog", 3]
    found = corruption_errors(measured(conditions), reference=ALEXNET)
    assert np.isnan(found.relative[found.corruption == "fog"]).all()
    assert np.isnan(found.mce)
    assert np.isfinite(found.mean_error)
    few = {key: value for key, value in conditions.items() if key[0] != "fog"}
    assert np.isnan(corruption_errors(measured(few), reference=ALEXNET).mce)
    extra = conditions | {("fog", 3): 0.5} | {("spatter", s): 0.0 for s in range(1, 6)}
    found = corruption_errors(measured(extra), reference=ALEXNET)
    assert found.mce == pytest.approx(np.mean([0.5 / e for e in ALEXNET.values()]))


def test_what_was_found_is_said():
    found = corruption_errors(measured({CLEAN: 1.0, ("fog", 1): 0.9, ("snow", 1): 0.5}))
    assert found.sentences() == [
        "30.0% of the corrupted images are wrong, 0.0% of clean ones; most under snow (50.0%)"
    ]
    assert (
        found.sentences()[0].replace("; most", ", mCE 90.0%; most")
        in replace(found, mce=0.9).sentences()
    )


def test_the_worst_condition_and_the_calibration_are_said(model):
    targets = torch.arange(30) % 3
    data = {
        CLEAN: [(colours(*targets.tolist()), targets)],
        ("fog", 1): [(colours(*targets.tolist()), targets)],
        ("fog", 5): [(colours(*(targets + 1).remainder(3).tolist()), targets)],
    }
    found = robustness(model, data, resamples=20)
    ece = [found.of("ece", *c) for c in (("fog", 1), ("fog", 5))]
    (said,) = found.sentences()
    assert said.startswith("fog at severity 5 does most harm: 0.0% of the images are right (95")
    assert f"mean ECE on corrupted images is {np.mean(ece):.1%}, " in said
    del data["fog", 5]
    (said,) = robustness(model, data, resamples=20).sentences()
    assert said == "No corruption costs accuracy that can be told from chance"


# Sequences.


def test_flips_count_against_the_frame_before_and_of_noise_against_the_first(model):
    frames = torch.stack([colours(0, 0, 1, 1, 0), colours(2, 2, 2, 2, 2)])
    found = stability(model, {"rotate": [frames], "shot_noise": [frames]}, resamples=50)
    np.testing.assert_allclose(found.flip_rate, [(2 / 4 + 0) / 2, (2 / 4 + 0) / 2])
    np.testing.assert_allclose(found.consistency, [3 / 4, 3 / 4])
    back = torch.stack([colours(0, 1, 0, 1, 0)])
    found = stability(model, {"rotate": [back], "shot_noise": [back]}, resamples=0)
    np.testing.assert_allclose(found.flip_rate, [1, 1 / 2])
    np.testing.assert_allclose(found.consistency, [0, 0])
    assert found.mean_flip_rate == 0.75
    assert np.isnan(found.flip_low).all()
    assert found.provenance.images == 1
    assert found.sentences() == [
        "75.00% of the frames change the prediction; most of rotate (100.00%)"
    ]


def test_the_interval_is_over_images_not_over_frames(model):
    # Half of the images flip in every frame: the deviation of their mean is 0.5 / sqrt(n).
    frames = torch.stack([colours(0, 1, 0, 1), colours(2, 2, 2, 2)] * 50)
    found = stability(model, {"tilt": frames.split(30)}, resamples=1000)
    half = 1.96 * 0.5 / 10
    assert found.flip_low[0] == pytest.approx(0.5 - half, abs=0.15 * half)
    assert found.flip_high[0] == pytest.approx(0.5 + half, abs=0.15 * half)


# Contracts and errors.


def test_results_are_saved_and_read(tmp_path):
    found = corruption_errors(measured({("fog", 1): 0.9}))
    found.save(tmp_path / "a.npz")
    assert Result.load(tmp_path / "a.npz").mean_error == found.mean_error


def test_nothing_to_measure_is_refused(model):
    with pytest.raises(InputError, match="no corrupted data; name a corruption"):
        robustness(model, {})
    with pytest.raises(InputError, match="no corruption was measured; there is nothing"):
        corruption_errors(measured({CLEAN: 0.5}))
    with pytest.raises(InputError, match="no 'ece' of 'fog' at severity 2"):
        measured({("fog", 1): 0.5}).of("ece", "fog", 2)
    with pytest.raises(InputError, match="there are no sequences; name a perturbation"):
        stability(model, {})


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 1, 3, 4, 4)])
def test_sequences_that_are_no_frames_are_refused(model, shape):
    with pytest.raises(InputError, match=r"sequences are frames \(images, frames, C, H, W\)"):
        stability(model, {"tilt": [torch.zeros(shape)]})


def test_sequences_of_different_lengths_are_refused(model):
    with pytest.raises(InputError, match="sequences of 3 and of 2 frames; wants one number"):
        stability(model, {"tilt": [torch.zeros(1, n, 3, 4, 4) for n in (2, 3)]})
