"""Laws of chance level: VP101, and no verdict with it."""

from dataclasses import replace
from math import isnan, nan

import numpy as np
import pytest
from internals import at_chance
from scipy.stats import binomtest

from visprism import Provenance


@pytest.mark.parametrize("correct", [0, 33, 34, 100])
def test_the_limit_is_that_of_wilsons_interval(correct):
    interval = binomtest(correct, 100).proportion_ci(method="wilson")
    assert at_chance(correct / 100, 100, 4) == (interval.low <= 0.25)


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("ablations", "baseline_accuracy"),
        ("kind_ablations", "baseline_accuracy"),
        ("frequency_robustness", "clean_accuracy"),
        ("attacks", "clean_accuracy"),
    ],
)
def test_results_about_accuracy_say_that_it_is_that_of_chance(made, name, accuracy):
    def codes(value):
        origin = replace(made[name].provenance, images=100)
        changed = {accuracy: value, "classes": 4, "provenance": origin}
        return [f.code for f in replace(made[name], **changed).findings() if f.code]

    assert codes(0.0) == ["VP101"]
    assert codes(0.8) == []


@pytest.mark.parametrize(("accuracy", "place"), [(0.0, nan), (0.9, 1.0)])
def test_claim_c7_says_nothing_about_a_model_at_chance(made, accuracy, place):
    result = replace(
        made["frequency_robustness"],
        frequency=np.array([0.1, 0.5, 0.9]),
        mixing="conv",
        classes=4,
        clean_accuracy=accuracy,
        provenance=Provenance(images=100),
    )
    (high,) = (a for a in result.answers() if a.id == "frequency-robustness.high_drop")
    assert high.place == place or (isnan(high.place) and isnan(place))
    assert ("VP101" in [f.code for f in result.findings()]) is isnan(place)


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.0, ""), (0.9, "supports")])
def test_no_verdict_on_claim_c10_is_given_for_a_model_at_chance(made, accuracy, verdict):
    result = replace(
        made["kind_ablations"],
        comparison=np.array(["attention, late minus early"] * 3),
        baseline_accuracy=accuracy,
        classes=4,
        provenance=Provenance(images=100),
    )
    assert [a.verdict for a in result.answers()] == [verdict] * 3
