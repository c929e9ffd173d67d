"""The decision rules on synthetic values whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from visprism import InputError
from visprism.claims.decisions import decide, joint
from visprism.core.run import stream


def test_a_clear_difference_is_supported_or_contradicted():
    low, high = [1.0, 1.1, 0.9], [2.0, 2.1, 1.9]
    assert decide(low, high, "lower").verdict == "supported"
    assert decide(low, high, "higher").verdict == "contradicted"
    assert decide(high, low, "higher").verdict == "supported"


def test_equal_values_whose_mean_is_rounded_have_no_interval():
    first = [0.1, 0.1, 0.1]
    assert np.var(first, ddof=1) > 0
    for control in (None, [0.2, 0.2, 0.2]):
        assert "one value" in decide(first, control, "lower").reason


def test_overlapping_arms_are_undecided_and_the_number_of_seeds_would_decide():
    first, other = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.9, 3.4])
    decision = decide(first, other, "lower")
    assert decision.verdict == "undecided"
    n = decision.seeds_to_decide
    error = np.sqrt((first.var(ddof=1) + other.var(ddof=1)) / n)
    v = np.array([first.var(ddof=1), other.var(ddof=1)]) / n
    freedom = v.sum() ** 2 / (v**2 / (n - 1)).sum()
    effect = abs(first.mean() - other.mean())
    assert stats.t.ppf(0.975, freedom) * error < effect
    assert f"{n} seeds of each arm" in decision.reason


def test_intervals_are_those_of_scipy():
    rng = np.random.default_rng(0)
    first, other = rng.normal(size=4), rng.normal(0.5, 2, size=3)
    decision = decide(first, other, "lower")
    expected = stats.ttest_ind(first, other, equal_var=False).confidence_interval(0.95)
    assert (decision.low, decision.high) == pytest.approx((expected.low, expected.high))
    decision = decide(first, None, "lower")
    expected = stats.ttest_1samp(first, 0).confidence_interval(0.95)
    assert (decision.low, decision.high) == pytest.approx((expected.low, expected.high))


def test_a_ratio_is_compared_in_logarithms():
    first, other = np.array([1.0, 1.2, 0.8]), np.array([4.0, 5.0, 3.0])
    decision = decide(first, other, "lower", logarithm=True)
    logs = decide(np.log(first), np.log(other), "lower")
    assert decision.effect == pytest.approx(np.exp(logs.effect) - 1)
    assert decision.high == pytest.approx(np.exp(logs.high) - 1)
    scaled = decide(10 * first, 10 * other, "lower", logarithm=True)
    assert scaled.effect == pytest.approx(decision.effect)


@pytest.mark.parametrize(
    ("values", "control", "reason"),
    [
        ([1.0], [2.0, 3.0], "at least 2 seeds"),
        ([1.0, 1.0], [2.0, 2.0], "no spread can be estimated"),
        ([1.0, np.nan], [2.0, 2.1], "not finite"),
    ],
)
def test_what_has_no_interval_is_undecided_with_the_reason(values, control, reason):
    decision = decide(values, control, "lower")
    assert decision.verdict == "undecided"
    assert reason in decision.reason
    assert decision.seeds_to_decide == -1


def test_values_that_have_no_logarithm_are_undecided():
    assert "not positive" in decide([1.0, -1.0], [2.0, 3.0], "lower", logarithm=True).reason


def test_an_arm_without_values_is_refused():
    with pytest.raises(InputError, match="at least one value"):
        decide([], [1.0], "lower")


@pytest.mark.slow
def test_a_true_null_is_decided_in_5_percent_of_experiments():
    """Student's and Welch's intervals of three normal values have their nominal error."""
    rng = np.random.default_rng(stream(0, "null").initial_seed() % 2**32)
    for control in (True, False):
        verdicts = [
            decide(rng.normal(size=3), rng.normal(size=3) if control else None, "lower").verdict
            for _ in range(1500)
        ]
        decided = np.mean([v != "undecided" for v in verdicts])
        # Welch's interval is conservative for three values; 4 standard errors around 5%.
        assert (0.01 if control else 0.0275) < decided < 0.0725


def test_a_claim_holds_if_each_hypothesis_holds():
    assert joint(["supported", "supported"]) == "supported"
    assert joint(["supported", "undecided"]) == "undecided"
    assert joint(["undecided", "contradicted", "supported"]) == "contradicted"
