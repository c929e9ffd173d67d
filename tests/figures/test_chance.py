"""Laws of chance level: VP101."""

from dataclasses import replace

import pytest
from scipy.stats import binomtest

from visprism.estimates.findings import at_chance


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
