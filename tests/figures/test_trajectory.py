"""The figures of trajectories show the numbers of the result, and what they leave out."""

import numpy as np

from visprism import plot
from visprism.drawing.style import DEPTH


def points(ax):
    return np.array([line.get_xydata()[0] for line in ax.lines if line.get_marker() == "o"])


def test_each_snapshot_has_a_point_by_its_components(made, ax):
    result = made["trajectory"]
    plot(result, ax)
    np.testing.assert_array_equal(points(ax), np.stack([result.first, result.second], 1))
    colors = [line.get_color() for line in ax.lines if line.get_marker() == "o"]
    assert colors[0] == DEPTH(0.0)
    assert colors[-1] == DEPTH(1.0)
    assert ax.get_xlabel() == "First component (70% of the variance)"


def test_in_polar_coordinates_the_last_is_the_middle(made, ax):
    result = made["trajectory"]
    plot(result, ax, view="polar")
    positions = points(ax)
    np.testing.assert_allclose(positions[[0, -1]], [[1, 0], [0, 0]])
    np.testing.assert_allclose(np.hypot(*positions.T), result.radius)
    np.testing.assert_allclose(np.arctan2(*positions[1:3, ::-1].T), result.angle[1:3])


def test_it_says_what_it_does_not_show(made, ax):
    plot(made["trajectory"], ax)
    assert "is not shown" in " ".join(text.get_text() for text in ax.texts)
