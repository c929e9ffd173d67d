"""Tests of error consistency and of calibration differences (results/predictions.py)."""

import numpy as np
import pytest
from scipy import stats

from visprism import InputError, Provenance, Result
from visprism.core.statistics import kappa_interval
from visprism.results.differences import paired_differences
from visprism.passes.outcomes import Outcomes
from visprism.results.predictions import calibration_differences
from visprism.analyses.predictions.error_consistency import error_consistency


def outcomes(correct, confidence=None, name: str = "") -> Outcomes:
    correct = np.asarray(correct, bool)
    n = len(correct)
    confidence = np.full(n, 0.9) if confidence is None else confidence
    return Outcomes(
        target=np.zeros(n, int),
        predicted=np.where(correct, 0, 1),
        correct=correct,
        top5=np.ones(n, bool),
        confidence=confidence.astype(np.float32),
        nll=np.where(correct, 0.1, 2.0),
        brier=np.zeros(n),
        classes=2,
        provenance=Provenance(model=name, images=n),
    )


def cohen_kappa(a: np.ndarray, b: np.ndarray) -> float:
    """As scikit-learn has it: one minus weighted disagreement over that of the marginals."""
    confusion = np.array([[np.sum((a == i) & (b == j)) for j in (0, 1)] for i in (0, 1)])
    rows, columns = confusion.sum(0), confusion.sum(1)
    expected = np.outer(rows, columns) / rows.sum()
    weights = 1 - np.eye(2)
    return 1 - (weights * confusion).sum() / (weights * expected).sum()


# Error consistency.


def test_kappa_by_hand():
    # 50 images: both correct on 25, both wrong on 10, one of them alone on 10 and on 5.
    first = outcomes([1, 1, 1, 1, 1, 0, 0, 1, 1, 0] * 5, name="resnet")
    second = outcomes([1, 1, 1, 1, 1, 0, 0, 0, 0, 1] * 5, name="vit")
    result = error_consistency(first, second)
    assert result.observed == pytest.approx(0.7)
    assert result.expected == pytest.approx(0.7 * 0.6 + 0.3 * 0.4)
    assert result.kappa == pytest.approx((0.7 - 0.54) / 0.46)
    assert (result.both_correct, result.both_wrong) == (25, 10)
    assert result.image[:3].tolist() == [7, 8, 9]
    assert result.only_first[:3].tolist() == [True, True, False]
    kappa, differ = (finding.text for finding in result.findings())
    assert kappa.startswith("error consistency of resnet and vit: kappa 0.348 [")
    assert kappa.endswith(
        "over 50 images (observed agreement 70.0%, 54.0% expected of independent errors)"
    )
    assert differ == ("10 of 50 images are classified correctly by resnet only, 5 by vit only")


@pytest.mark.parametrize("correct", [4, 96])
def test_few_correct_or_wrong_predictions_have_no_interval_of_kappa(correct: int):
    rare = outcomes(np.arange(100) < correct)
    result = error_consistency(rare, outcomes(np.arange(100) % 2 == 0))
    assert np.isfinite(result.kappa)
    assert np.isnan([result.low, result.high]).all()


def test_few_errors_have_no_interval_of_kappa():
    first, second = outcomes([1] * 46 + [0] * 4), outcomes([1] * 40 + [0] * 10)
    result = error_consistency(first, second)
    assert np.isfinite(result.kappa)
    assert np.isnan([result.low, result.high]).all()


def test_kappa_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    for _ in range(20):
        a, b = generator.random((2, 50)) < 0.6
        result = error_consistency(outcomes(a), outcomes(b))
        assert result.kappa == pytest.approx(cohen_kappa(a, b))


def test_equal_errors_have_kappa_1_and_opposite_ones_are_negative():
    correct = np.arange(20) < 10
    assert error_consistency(outcomes(correct), outcomes(correct)).kappa == pytest.approx(1)
    assert error_consistency(outcomes(correct), outcomes(~correct)).kappa == pytest.approx(-1)


def test_kappa_is_undefined_where_both_models_make_no_error():
    result = error_consistency(outcomes(np.ones(5)), outcomes(np.ones(5)))
    assert np.isnan([result.kappa, result.low, result.high]).all()
    assert "undefined" in result.findings()[0].text


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ([1] * 50, [1] * 43 + [0] * 7, "vit is correct on all images, so that kappa is 0"),
        ([1] * 43 + [0] * 7, [0] * 50, "cnn is wrong on all images, so that kappa is 0"),
        ([1] * 50, [1] * 50, "both models are correct on all images"),
        ([0] * 50, [0] * 50, "both models are wrong on all images"),
        ([1] * 46 + [0] * 4, [0] * 47 + [1] * 3, "vit is wrong on 4 and cnn is correct on 3"),
    ],
)
def test_a_kappa_without_an_interval_has_the_reason(first, second, reason):
    result = error_consistency(outcomes(first), outcomes(second), names=("vit", "cnn"))
    assert result.kappa == 0 or "kappa is 0" not in reason
    assert reason in result.findings()[0].text
    _, answer = result.answers()
    assert answer.missing.startswith(reason)
    assert np.isnan(answer.low)


def test_the_interval_of_kappa_is_that_of_the_counts():
    a, b = np.random.default_rng(1).random((2, 80)) < 0.7
    counts = np.array([[np.sum((a == i) & (b == j)) for j in (0, 1)] for i in (0, 1)])
    result = error_consistency(outcomes(a), outcomes(b))
    assert (result.low, result.high) == kappa_interval(counts.astype(float))


def test_error_consistency_survives_a_file(tmp_path):
    result = error_consistency(outcomes([1, 0, 1]), outcomes([1, 1, 0]))
    result.save(tmp_path / "kappa.npz")
    assert Result.load(tmp_path / "kappa.npz") == result
    _, answer = result.answers()
    assert answer.value == result.kappa


def test_outcomes_of_different_images_are_refused():
    with pytest.raises(InputError, match="same images in the same order, got 3 and 2 images"):
        error_consistency(outcomes([1, 0, 1]), outcomes([1, 0]))


# Differences.


def test_values_of_images_give_the_paired_difference_of_accuracy_and_nll():
    generator = np.random.default_rng(2)
    a, b = generator.random((2, 200)) < 0.7
    differences = paired_differences(outcomes(a).per_image(), outcomes(b).per_image())
    assert differences.quantity.tolist() == [
        "accuracy",
        "NLL",
        "Brier score",
        "signed ECE (mean confidence - accuracy)",
    ]
    assert differences.difference[0] == pytest.approx(b.mean() - a.mean())
    assert differences.difference[3] == pytest.approx(a.mean() - b.mean())


def pair(generator: np.random.Generator, images: int, gaps: tuple[float, float]):
    """Two models of correlated confidence and correctness, overconfident by their gaps."""
    difficulty, luck = generator.normal(size=(2, images))
    for gap in gaps:
        logit = 2 + 1.5 * (0.8 * difficulty + 0.6 * generator.normal(size=images))
        confidence = (1 / (1 + np.exp(-np.abs(logit)))).clip(0.5, 0.9999)
        chance = stats.norm.cdf(0.8 * luck + 0.6 * generator.normal(size=images))
        yield outcomes(chance < confidence - gap, confidence)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("gaps", [(0.0, 0.0), (0.0, 0.08), (0.03, 0.08), (0.05, 0.05)])
def test_the_interval_of_the_difference_of_the_ece_holds_the_truth_in_95_percent(
    gaps: tuple[float, float],
):
    generator = np.random.default_rng(3)
    inside = []
    for _ in range(100):
        result = calibration_differences(*pair(generator, 300, gaps))
        inside.append(result.low[0] <= gaps[1] - gaps[0] <= result.high[0])
    assert np.mean(inside) >= 0.9  # deviation 0.02


def test_a_model_has_the_calibration_of_itself():
    first, _ = pair(np.random.default_rng(4), 200, (0.0, 0.0))
    result = calibration_differences(first, first)
    assert result.difference[0] == 0
    assert result.low[0] <= 0 <= result.high[0]


def test_the_difference_changes_its_sign_with_the_order_of_the_models():
    first, second = pair(np.random.default_rng(5), 200, (0.0, 0.1))
    there, back = (calibration_differences(a, b) for a, b in ((first, second), (second, first)))
    assert (there.difference, there.low, there.high) == (
        -back.difference,
        -back.high,
        -back.low,
    )


def test_common_errors_make_the_interval_of_the_difference_narrower():
    generator = np.random.default_rng(6)
    confidence = generator.uniform(0.5, 0.95, size=(2, 2000)).astype(np.float32)
    luck = generator.random((2, 2000))
    first = outcomes(luck[0] < confidence[0] - 0.2, confidence[0])
    alike = outcomes(luck[0] < confidence[0] - 0.2, confidence[0])
    other = outcomes(luck[1] < confidence[1] - 0.2, confidence[1])
    widths = [
        float(result.high[0] - result.low[0])
        for result in (calibration_differences(first, second) for second in (alike, other))
    ]
    assert widths[0] < 0.2 * widths[1]


def test_few_images_have_no_interval_of_the_difference_of_the_ece():
    confidence = np.full(99, 0.95, np.float32)
    first, second = (outcomes(np.arange(99) >= wrong, confidence) for wrong in (4, 9))
    result = calibration_differences(first, second)
    assert np.isfinite(result.difference).all()
    assert np.isnan([result.low, result.high]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_difference_of_two_models_without_errors_holds_the_truth():
    generator = np.random.default_rng(7)
    truth, inside = 0.2 - 2 / 22, []
    for _ in range(150):
        first, second = (
            outcomes(np.ones(512, bool), generator.beta(a, 2, 512)) for a in (20, 8)
        )
        result = calibration_differences(first, second)
        inside.append(result.low[0] <= truth <= result.high[0])
    assert np.mean(inside) >= 0.9  # deviation 0.02


@pytest.mark.parametrize(("wrong", "given"), [((5, 9), True), ((4, 9), False), ((9, 0), False)])
def test_differences_of_losses_need_five_wrong_predictions_of_each_model(
    wrong: tuple[int, int], *, given: bool
):
    generator = np.random.default_rng(8)
    pair = [
        outcomes(np.arange(100) >= number, generator.uniform(0.6, 1, 100)).per_image()
        for number in wrong
    ]
    result = paired_differences(*pair)
    rows = {
        name: bool(np.isfinite(low))
        for name, low in zip(result.quantity, result.low, strict=True)
    }
    assert rows.pop("accuracy")
    del rows["NLL"], rows["Brier score"]  # constant in these outcomes
    assert set(rows.values()) == {given}
