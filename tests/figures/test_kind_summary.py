"""The figures of a summary by kind show its means, intervals and counts."""

import numpy as np
import pytest

from visprism import plot


def test_a_point_is_the_mean_and_its_bar_the_interval(made, ax):
    plot(made["kind_summary"], ax)
    assert len(ax.containers) == 4
    point, _, (bar,) = ax.containers[0]
    assert point.get_ydata().tolist() == [-0.4]
    assert bar.get_segments()[0][:, 1].tolist() == pytest.approx([-0.9, 0.1])
    assert "high-frequency log amplitude relative to the mean · -0.4" in point.get_gid()


def test_a_mean_without_an_interval_has_a_point_without_a_bar(made, ax):
    plot(made["kind_summary"], ax)
    point, _, (bar,) = ax.containers[2]
    assert point.get_ydata().tolist() == [0.2]
    assert np.isnan(bar.get_segments()).all()


def test_quantities_of_one_kind_stand_side_by_side_filled_and_open(made, ax):
    plot(made["kind_summary"], ax)
    points = [container.lines[0] for container in ax.containers]
    places = [point.get_xdata()[0] for point in points]
    assert places[0] < 0 < places[1] < places[2] < 1 < places[3]
    assert points[1].get_markerfacecolor() == "white" != points[0].get_markerfacecolor()
    assert "(filled: to the mean, open: to the lowest)" in ax.get_ylabel()


def test_counts_stand_below_the_kinds(made, ax):
    plot(made["kind_summary"], ax)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["attention\n2/3 fall, 0 rise", "mlp\n0/1 fall, 1 rise"]


def test_seeds_are_counted_below_a_replication(made, ax):
    plot(made["kind_replication"], ax)
    assert [t.get_text() for t in ax.get_xticklabels()] == [
        "attention\n3 below, 0 above 0 of 3"
    ]
    assert "open: / mean square" in ax.get_ylabel()


def test_a_summary_of_nothing_says_so(made, ax):
    plot(made["kind_summary"].select(np.zeros(4, dtype=bool)), ax)
    assert [text.get_text() for text in ax.texts] == ["no block counted"]
