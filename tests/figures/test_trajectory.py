"""The figures of trajectories show the numbers of the result, and what they leave out."""

import numpy as np

from visprism import plot


def points(ax):
    return np.array([line.get_xydata()[0] for line in ax.lines if line.get_marker() == "o"])


def test_in_polar_coordinates_the_last_is_the_middle(made, ax):
    result = made["trajectory"]
    plot(result, ax, view="polar")
    positions = points(ax)
    np.testing.assert_allclose(positions[[0, -1]], [[1, 0], [0, 0]])
    np.testing.assert_allclose(np.hypot(*positions.T), result.radius)
    np.testing.assert_allclose(np.arctan2(*positions[1:3, ::-1].T), result.angle[1:3])
