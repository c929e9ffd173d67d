"""Costs as rows: latency in turns, and what a busy machine allows."""

import numpy as np
import pytest

from visprism import examine
from visprism.estimates.questions import LATENCY, PARAMETERS
from visprism.report.costs import BUSY, cost_rows
from visprism.report.glance import NOT_FOUND, UNKNOWN, glance_of


def timed(latencies, *, running=1.0, begun=0.0):
    rounds = [1e-3 * x for x in latencies]
    return {
        "latency": rounds,
        "running": [running] * len(rounds),
        "threads": [1.0],
        "batch": [32.0],
        "begun": [begun],
    }


def line_of(speed):
    (row,) = cost_rows(speed, {})
    return glance_of([row], list(speed))[0]


QUIET = [3.0, 3.02, 2.98, 3.01, 2.99]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ([2.0, 2.02, 1.98, 2.01, 1.99], "b"),
        (QUIET[::-1], "equal within 5%"),
        ([3.0, 3.3, 2.8, 3.2, 2.9], NOT_FOUND),
    ],
)
def test_the_ratio_over_rounds_decides(second, expected):
    line = line_of({"a": timed(QUIET), "b": timed(second)})
    assert line.better.startswith(expected)
    assert line.cells["a"] == "3 (2.98 to 3.02)"
    assert line.label == "latency, 1 thread (ms)"


def test_drift_that_both_models_share_does_not_hide_a_difference():
    drift = np.linspace(1, 1.15, 5)
    line = line_of({"a": timed(3 * drift), "b": timed(2.8 * drift * [1, 1.001, 1, 1.002, 1])})
    assert line.better == "b"


@pytest.mark.parametrize("slow", [timed([3.0, 9.0, 4.0, 3.0, 5.0]), timed(QUIET, running=0.5)])
def test_a_busy_machine_is_named_and_decides_nothing(slow):
    line = line_of({"a": slow, "b": timed([2.9, 3.2, 3.0, 3.1, 2.8])})
    assert (line.better, line.reason) == (UNKNOWN, BUSY)
    assert BUSY in line.label


def test_models_that_were_not_timed_together_are_not_compared():
    (row,) = cost_rows({"a": timed(QUIET), "b": timed(QUIET, begun=1.0)}, {})
    assert row.differences["a", "b"].missing == "timed in different runs"


def test_costs_of_a_study_are_rows(net, loader):
    study = examine({"a": net(0), "b": net(1)}, loader, analyses=["anatomy", "variance"])
    rows = {row.question: row for row in study.table()}
    assert PARAMETERS.text in rows
    assert LATENCY.text in rows
    for speed in study.header["speed"].values():
        assert len(speed["latency"]) == len(speed["throughput"]) == 5
