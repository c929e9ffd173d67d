"""Metrics of calibration, their intervals and what is said of them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from classifiers_by_hand import outcomes_by_hand as by_hand
from classifiers_by_hand import random_predictions
from scipy import stats
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
)

from visprism import (
    Predictions,
    accuracy_by_class,
    calibration,
    outcomes,
    reliability,
    risk_coverage,
)


def test_a_confidence_on_the_edge_belongs_to_the_bin_below():
    for edge in (0.1, 0.3, 0.6, 0.7, 0.9):
        beside = calibration(by_hand([edge, edge - 0.01], [1, 0]))
        assert beside.ece == pytest.approx(abs(1 - 2 * edge + 0.01) / 2, abs=1e-6)


def test_confidences_of_1_share_their_bin_with_those_below():
    # 100 images sure, 10 of them wrong; 100 at 0.95, all right: 190 where 195 should be. A
    # bin of their own for the sure ones, as torchmetrics 1.9 has it, would give (10 + 5) / 200.
    predictions = by_hand([1.0] * 100 + [0.95] * 100, [1] * 90 + [0] * 10 + [1] * 100)
    assert calibration(predictions).ece == pytest.approx(5 / 200, abs=1e-6)


def test_equal_logits_name_the_first_classes():
    result = outcomes(Predictions(torch.zeros(8, 8), torch.arange(8)))
    assert result.correct.tolist() == [True] + [False] * 7
    assert result.top5.tolist() == [True] * 5 + [False] * 3
    np.testing.assert_allclose(result.nll, np.log(8))
    np.testing.assert_allclose(result.confidence, 1 / 8)


def test_logits_beyond_overflow_give_a_finite_nll():
    logits = torch.tensor([[3e38, -3e38]]).expand(2, -1)
    result = outcomes(Predictions(logits, torch.tensor([1, 0])))
    assert result.nll[1] == 0
    np.testing.assert_allclose(result.nll[0], 2 * logits[0, 0].double().item())
    assert result.brier.tolist() == [2, 0]


def test_a_class_that_is_ruled_out_by_minus_infinity_has_probability_0():
    logits = torch.tensor([[0.0, -torch.inf, 0.0]])
    result = outcomes(Predictions(logits, torch.tensor([0])))
    assert result.confidence[0] == 0.5
    assert result.brier[0] == pytest.approx(0.5)
    assert calibration(Predictions(logits, torch.tensor([1]))).nll == np.inf


def test_the_order_of_images_does_not_matter_also_with_ties():
    generator = np.random.default_rng(0)
    confidence = generator.choice([0.3, 0.5, 0.9, 1.0], 60)
    correct = generator.random(60) < confidence
    order = generator.permutation(60)
    first, second = (
        calibration(by_hand(confidence[o], correct[o])) for o in (np.arange(60), order)
    )
    for name in first.estimates():
        assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-12)


def loops(logits, targets, bins):
    """Metrics from their definitions, one image after the other, in float64."""
    rows = []
    for row, target in zip(logits.double().exp().numpy(), targets.tolist(), strict=True):
        p = row / row.sum()
        best = int(p.argmax())
        score = ((p - np.eye(len(p))[target]) ** 2).sum()
        rows.append((target, best, float(p[best]), -np.log(p[target]), score))
    rows.sort(key=lambda row: -row[2])
    n = len(rows)
    right = [t == b for t, b, *_ in rows]

    gaps = []
    for lower, upper in pairwise(np.linspace(0, 1, bins + 1)):
        gaps.append(sum(right[i] - rows[i][2] for i in range(n) if lower < rows[i][2] <= upper))
    even = np.array_split(np.arange(n), bins)
    return {
        "nll": np.mean([row[3] for row in rows]),
        "brier": np.mean([row[4] for row in rows]),
        "ece": sum(map(abs, gaps)) / n,
        "signed_ece": sum(row[2] for row in rows) / n - np.mean(right),
        "adaptive_ece": sum(abs(sum(right[i] - rows[i][2] for i in e)) for e in even) / n,
        "aurc": np.mean([1 - np.mean(right[: i + 1]) for i in range(n)]),
    }


@pytest.mark.parametrize("bins", [10, 16])
def test_agrees_with_the_definitions_in_loops(bins):
    predictions = random_predictions(320, 9)
    metrics = calibration(predictions, bins=bins)
    expected = loops(predictions.logits, predictions.targets, bins)
    for metric, value in expected.items():
        assert getattr(metrics, metric) == pytest.approx(value, abs=2e-6), metric


def test_agrees_with_torchmetrics_where_no_confidence_is_1():
    predictions = random_predictions(3000, 20)
    p, t = predictions.logits.softmax(-1), predictions.targets
    metrics = calibration(predictions, bins=15)
    for norm, metric in (("l1", "ece"), ("max", "mce")):
        theirs = multiclass_calibration_error(p, t, num_classes=20, n_bins=15, norm=norm)
        assert getattr(metrics, metric) == pytest.approx(float(theirs), abs=1e-5)
    for k, metric in ((1, "accuracy"), (5, "top5")):
        theirs = multiclass_accuracy(p, t, num_classes=20, top_k=k, average="micro")
        assert getattr(metrics, metric) == pytest.approx(float(theirs), abs=1e-6)
    theirs = torch.nn.functional.cross_entropy(predictions.logits, t)
    assert metrics.nll == pytest.approx(float(theirs), abs=1e-5)


def test_metrics_that_are_means_or_fractions_of_images_have_an_interval():
    metrics = calibration(random_predictions())
    closed = {"accuracy", "top5", "debiased_ece", "nll", "brier", "signed_ece", "aurc"}
    numbers = {name: getattr(metrics, name) for name in metrics.estimates()}
    assert {
        name for name, n in numbers.items() if np.isfinite(n.low)
    } == closed  # others: biased


@pytest.mark.parametrize(("wrong", "given"), [(4, False), (5, True), (95, True), (96, False)])
def test_losses_have_an_interval_from_five_correct_and_five_wrong_predictions_on(wrong, given):
    confidence = np.linspace(0.6, 0.99, 100)
    metrics = calibration(by_hand(confidence, np.arange(100) >= wrong))
    for metric in ("signed_ece", "aurc"):
        assert np.isfinite(getattr(metrics, metric).low) == given


def test_intervals_of_fractions_are_wilson_intervals():
    confidence = [0.95] * 30 + [0.6] * 20
    correct = [1] * 27 + [0] * 3 + [1] * 12 + [0] * 8
    metrics = calibration(by_hand(confidence, correct))
    for metric, successes in (("accuracy", 39), ("top5", 50)):
        expected = stats.binomtest(successes, 50).proportion_ci(method="wilson")
        value = getattr(metrics, metric)
        assert (value.low, value.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(("factor", "word"), [(3.0, "overconfident"), (0.3, "underconfident")])
def test_a_direction_is_named_where_the_interval_excludes_0(factor, word):
    predictions = random_predictions(600)
    metrics = calibration(Predictions(factor * predictions.logits, predictions.targets))
    assert metrics.findings()[3].text.endswith(f", {word}")
    assert [answer.reading for answer in metrics.answers()] == ["", "", word, word]


def test_few_images_and_a_model_at_chance_leave_the_direction_undecided():
    few = calibration(by_hand([0.9, 0.6, 0.7], [1, 0, 0]))
    assert [a.reading for a in few.answers()[2:]] == [
        "undecided (few images, VP102)", "undecided",
    ]  # fmt: skip
    predictions = random_predictions(600)
    shuffled = predictions.targets[torch.randperm(600, generator=torch.manual_seed(0))]
    chance = calibration(Predictions(3 * predictions.logits, shuffled))
    assert chance.signed_ece.low > 0
    assert [f.code for f in chance.findings()] == ["", "", "", "", "VP101"]
    assert "overconfident" not in str(chance.findings())


def test_a_reliability_diagram_by_hand():
    diagram = reliability(by_hand([0.2, 0.25, 0.5, 1.0, 1.0], [1, 0, 1, 1, 0]), bins=4)
    np.testing.assert_array_equal(diagram.lower, [0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(diagram.upper, [0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(diagram.count, [2, 1, 0, 2])
    np.testing.assert_array_equal(diagram.frequency, [0.4, 0.2, 0, 0.4])
    np.testing.assert_allclose(diagram.accuracy, [0.5, 1, np.nan, 0.5])
    np.testing.assert_allclose(diagram.confidence, [0.225, 0.5, np.nan, 1], rtol=1e-6)


def test_risk_rises_from_none_to_the_error_rate_where_the_surest_are_right():
    curve = risk_coverage(by_hand([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0]))
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.risk, [0, 0, 1 / 3, 1 / 2])
    np.testing.assert_allclose(curve.confidence, [0.9, 0.8, 0.7, 0.6], rtol=1e-6)
    assert curve.aurc == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_values_of_images_of_the_aurc_are_those_of_the_jackknife():
    predictions = random_predictions(300)
    aurc, images = calibration(predictions).aurc, np.arange(300)
    without = [calibration(predictions.subset(torch.from_numpy(images[images != i]))).aurc
               for i in images[::30]]  # fmt: skip
    expected = aurc - 299 * (np.array(without) - aurc)
    np.testing.assert_allclose(aurc.by_unit[::30], expected, atol=0.06)


def test_confusions_are_those_of_torchmetrics():
    names = list("abcdefgh")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 8, generator=generator)
    targets = torch.randint(0, 7, (200,), generator=generator)  # no image of the last class
    by_class, confusions = accuracy_by_class(Predictions(logits, targets), names)
    matrix = multiclass_confusion_matrix(logits, targets, 8).numpy()
    columns = confusions.target, confusions.predicted, confusions.images, confusions.fraction
    for target, predicted, images, fraction in zip(*columns, strict=True):
        row, column = names.index(target), names.index(predicted)
        assert images == matrix[row, column]
        assert fraction == images / (targets == row).sum().item()
        matrix[row, column] = 0
    assert not matrix.any()
    expected = multiclass_accuracy(logits, targets, 8, average=None).numpy()
    order = [names.index(name) for name in by_class.target]
    assert np.asarray(by_class.accuracy) == pytest.approx(expected[order])
    assert set(order) == set(range(7))
    assert (np.diff(by_class.accuracy) >= 0).all()
    # Classes of one name are different classes.
    _, equal = accuracy_by_class(Predictions(logits, targets), ["crane"] * 8)
    assert equal.errors.images.sum() == confusions.errors.images.sum()
    assert equal.errors.target[0] == f"crane ({names.index(confusions.errors.target[0])})"
