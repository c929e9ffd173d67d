"""Intervals and findings of calibration (src/visprism/measure/outputs/calibration.py)."""

import numpy as np
import pytest
from scipy import stats

from visprism import Predictions, calibration
from visprism.analyses.predictions.confidence_metrics import SortedByConfidence
from visprism.analyses.predictions.confidence_metrics import aurc_contributions
from visprism.passes.outcomes import Outcomes

# Intervals.


def test_the_interval_of_a_share_is_that_of_the_binomial(by_hand):
    n, p = 4000, 0.7
    metrics = calibration(by_hand(np.full(n, 0.8), np.arange(n) < p * n))
    (row,) = np.flatnonzero(metrics.metric == "accuracy")
    half = 1.96 * np.sqrt(p * (1 - p) / n)
    assert metrics.low[row] == pytest.approx(p - half, abs=0.15 * half)
    assert metrics.high[row] == pytest.approx(p + half, abs=0.15 * half)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_intervals_cover_the_truth_as_often_as_they_say(random_predictions):
    # The NLL of a large sample stands for the truth.
    truth = calibration(random_predictions(200_000, 3)).of("nll")
    inside = 0
    for seed in range(60):
        metrics = calibration(random_predictions(150, 3, seed=seed + 1))
        (row,) = np.flatnonzero(metrics.metric == "nll")
        inside += metrics.low[row] <= truth <= metrics.high[row]
    assert 51 <= inside <= 60  # 57 expected, deviation 1.7


@pytest.mark.parametrize("metric", ["accuracy", "signed_ece", "debiased_ece"])
def test_no_interval_leaves_out_its_value(random_predictions, metric):
    for seed in range(20):
        metrics = calibration(random_predictions(100, seed=seed))
        low, high = metrics.interval(metric)
        assert low <= metrics.of(metric) <= high


def covered_aurc(draw, truth: float, samples: int) -> float:
    """How often intervals of the AURC of samples contain its value in many images."""
    ends = np.array([calibration(draw()).interval("aurc") for _ in range(samples)])
    assert np.isfinite(ends).all()
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean())


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("images", [128, 400])
def test_the_interval_of_the_aurc_covers_it_where_errors_do_not_depend_on_confidence(
    by_hand, images
):
    # Then the error rate is 0.2 at every coverage, and so is their mean.
    generator = np.random.default_rng(1)

    def draw():
        return by_hand(generator.random(images), generator.random(images) < 0.8)

    assert 0.92 <= covered_aurc(draw, 0.2, 1000) <= 0.97


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_interval_of_the_aurc_covers_it_where_errors_are_least_confident(by_hand):
    # With error rate u at the fraction u of images from the top, the risk at c is c / 2.
    generator = np.random.default_rng(2)

    def draw():
        below = generator.random(200)
        return by_hand(1 - below, generator.random(200) >= below)

    assert 0.92 <= covered_aurc(draw, 0.25, 1000) <= 0.97


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_standard_error_of_the_aurc_is_that_of_the_jackknife(by_hand):
    generator = np.random.default_rng(3)
    confidence = generator.choice(np.linspace(0.5, 1, 30), 120)  # with equal confidences
    correct = generator.random(120) < confidence
    ranked = SortedByConfidence.of(by_hand(confidence, correct))
    contributions = aurc_contributions(ranked)
    without = [
        calibration(by_hand(np.delete(confidence, i), np.delete(correct, i))).of("aurc")
        for i in range(120)
    ]
    jackknife = np.sqrt(119 / 120 * np.sum((without - np.mean(without)) ** 2))
    assert stats.sem(contributions) == pytest.approx(jackknife, rel=0.03)


def test_metrics_that_are_means_or_fractions_of_images_have_an_interval(random_predictions):
    metrics = calibration(random_predictions())
    closed = {"accuracy", "top5", "acc", "freq", "unc", "debiased_ece"}
    closed |= {"nll", "brier", "signed_ece", "aurc"}
    assert set(metrics.metric[np.isfinite(metrics.low)]) == closed
    assert set(metrics.metric[np.isfinite(metrics.high)]) == closed


@pytest.mark.parametrize(("wrong", "given"), [(4, False), (5, True), (95, True), (96, False)])
def test_losses_have_an_interval_from_five_correct_and_five_wrong_predictions_on(
    by_hand, wrong, given
):
    confidence = np.linspace(0.6, 0.99, 100)
    metrics = calibration(by_hand(confidence, np.arange(100) >= wrong))
    for metric in ("signed_ece", "aurc"):
        assert np.isfinite(metrics.interval(metric)).all() == given


def test_biased_metrics_have_no_interval(random_predictions):
    metrics = calibration(random_predictions())
    biased = {"ece", "mce", "adaptive_ece", "iou", "mean_iou"}
    assert set(metrics.metric[np.isnan(metrics.low)]) == biased


def test_intervals_of_fractions_are_wilson_intervals(by_hand):
    confidence = [0.95] * 30 + [0.6] * 20
    correct = [1] * 27 + [0] * 3 + [1] * 12 + [0] * 8
    metrics = calibration(by_hand(confidence, correct))
    for metric, cutoff, successes, trials in (
        ("accuracy", None, 39, 50),
        ("acc", 0.9, 27, 30),
        ("freq", 0.9, 30, 50),
        ("unc", 0.9, 8, 11),
        ("top5", None, 50, 50),
    ):
        expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
        np.testing.assert_allclose(
            metrics.interval(metric, cutoff), (expected.low, expected.high), atol=1e-12
        )


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_intervals_of_the_signed_ece_cover_that_of_an_overconfident_model():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(120):
        logits = 2 + 1.5 * generator.normal(size=200)
        chance = 1 / (1 + np.exp(-np.abs(logits)))
        correct = generator.random(200) < chance - 0.07
        outcomes = Outcomes(
            target=np.zeros(200, int), predicted=np.where(correct, 0, 1), correct=correct,
            top5=np.ones(200, bool), confidence=chance.astype(np.float32), nll=np.zeros(200),
            brier=np.zeros(200), classes=2,
        )  # fmt: skip
        low, high = calibration(outcomes).interval("signed_ece")
        inside += low <= 0.07 <= high
    assert 105 <= inside <= 120  # 114 expected, deviation 2.4


# Findings.


def test_a_calibrated_model_is_called_neither_over_nor_underconfident(random_predictions):
    calls = [calibration(random_predictions(300, seed=s)).findings()[1].text for s in range(20)]
    assert sum("not significant" in text for text in calls) >= 16  # 19 expected, deviation 1


@pytest.mark.parametrize(
    ("factor", "verdict"), [(3.0, "overconfident"), (0.3, "underconfident")]
)
def test_a_direction_is_named_where_the_interval_excludes_0(
    random_predictions, factor, verdict
):
    predictions = random_predictions(600)
    scaled = Predictions(factor * predictions.logits, predictions.targets)
    accuracy, ece = calibration(scaled).findings()[:2]
    assert f", {verdict} (confidence - accuracy " in ece.text
    assert accuracy.text.startswith("accuracy ")
    assert accuracy.text.endswith("over 600 images")


def test_few_images_are_reported_where_the_bias_is_most_of_the_ece(random_predictions):
    codes = [f.code for f in calibration(random_predictions(60)).findings()]
    assert codes == ["", "", "VP102"]
    predictions = random_predictions(4000)
    scaled = Predictions(3 * predictions.logits, predictions.targets)
    assert [f.code for f in calibration(scaled).findings()] == ["", ""]


def test_answers_are_accuracy_nll_and_calibration_errors_with_their_intervals(
    random_predictions,
):
    metrics = calibration(random_predictions())
    answers = {answer.quantity: answer for answer in metrics.answers()}
    assert list(answers)[:3] == ["accuracy", "NLL", "debiased ECE"]
    assert (answers["NLL"].low, answers["NLL"].high) == metrics.interval("nll")
    assert all(answer.low <= answer.value <= answer.high for answer in answers.values())
