"""The figure of a tally shows its means, intervals and counts."""

import numpy as np
import pytest
from matplotlib.ticker import PercentFormatter

from visprism.figures import plot


def test_a_point_is_the_mean_and_its_bar_the_interval(made, ax):
    plot(made["tally"], ax)
    point, _, (bar,) = ax.containers[0]
    assert point.get_ydata().tolist() == [-0.4]
    assert bar.get_segments()[0][:, 1].tolist() == pytest.approx([-0.9, 0.1])


def test_one_block_has_a_point_without_a_bar(made, ax):
    plot(made["tally"], ax)
    point, _, (bar,) = ax.containers[1]
    assert point.get_ydata().tolist() == [0.2]
    assert np.isnan(bar.get_segments()).all()


def test_counts_stand_below_the_kinds(made, ax):
    plot(made["tally"], ax)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["attention\n2/3 fall", "mlp\n0/1 fall"]


def test_a_change_by_a_fraction_is_written_in_per_cent(made, ax):
    tally = made["tally"]
    plot(type(tally)(**{**vars(tally), "quantity": "variance"}), ax)
    formatter = ax.yaxis.get_major_formatter()
    assert isinstance(formatter, PercentFormatter)
    assert formatter(0.2) == "20%"


def test_a_tally_of_nothing_says_so(made, ax):
    plot(made["tally"].select(np.zeros(2, dtype=bool)), ax)
    assert [text.get_text() for text in ax.texts] == ["no block counted"]
