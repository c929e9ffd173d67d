"""Intervals contain the truth as often as benchmarks/results/interval_coverage.json says."""

import json
import runpy
from collections import defaultdict
from math import ceil
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
ROWS = json.loads((FOLDER / "results" / "interval_coverage.json").read_text("utf-8"))["rows"]
# Those of features take minutes for the truth alone; test_class_separability.py has them.
PARTS = ("fractions", "means", "calibration_errors", "comparisons", "eigenvalues", "few_units")
SLOW = {
    *("debiased ECE", "difference of ECE", "difference of shape bias", "mean aurc", "mean nll"),
    *("mean signed_ece", "paired NLL", "temperature"),
}
OF_NETWORKS = {"NC1", "NC2", "NC3", "RSA", "pairs and images"}


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(FOLDER / "coverage_of_intervals.py"))


@pytest.fixture(scope="module")
def cases(script):
    by_interval = defaultdict(list)
    for part in PARTS:
        for case in script[part]():
            by_interval[case.interval].append(case)
    return by_interval


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("interval", sorted({row["interval"] for row in ROWS} - OF_NETWORKS))
def test_an_interval_covers_the_truth_as_often_as_was_measured(script, cases, interval):
    """Over all situations; with other seeds, and none of them may be far off."""
    measured = {
        (row["situation"], row["units"]): row["coverage"]
        for row in ROWS
        if row["interval"] == interval and row["coverage"] is not None
    }
    samples = max(60, ceil((1000 if interval in SLOW else 5000) / len(measured)))
    now = [
        script["covered"](case, samples, 0, "").coverage
        for case in cases[interval]
        if (case.situation, case.units) in measured
    ]
    assert len(now) == len(measured)
    error = np.sqrt(0.05 * 0.95 / samples)
    assert min(now) > 0.91 - 4 * error
    expected = np.mean([*measured.values()])
    assert np.mean(now) == pytest.approx(expected, abs=4 * error / len(now) ** 0.5)
