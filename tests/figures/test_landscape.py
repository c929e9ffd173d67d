"""The figures of landscapes and trajectories show the numbers of the result."""

import numpy as np
from internals import CHANCE_POSITION, LossScale

from visprism import panel, plot


def test_the_scale_is_linear_up_to_knowing_nothing_then_logarithmic_and_ends():
    scale, chance = LossScale(10), np.log(10)
    values = scale(chance * np.array([0, 1 / 3, 1, 10, 100, 1e9]))
    expected = [0, CHANCE_POSITION / 3, CHANCE_POSITION, (1 + CHANCE_POSITION) / 2, 1, 1]
    np.testing.assert_allclose(values, expected)
    losses = np.linspace(0, 30, 500)
    np.testing.assert_allclose(scale.inverse(scale(losses)), losses, atol=1e-9)
    assert scale([1.0, np.inf, np.nan]).mask.tolist() == [False, True, True]


def test_contours_are_drawn_over_the_values(made, ax):
    result = made["landscape"]
    (image,) = plot(result, ax).images
    expected = result.table("nll", 0)
    values = image.get_array()
    np.testing.assert_allclose(values.filled(np.inf), expected)
    # A cell stands about its point.
    assert image.get_extent() == [-1.25, 1.25, -1.25, 1.25]
    assert ax.get_xlim() == (-1, 1)


def test_the_bold_line_is_where_the_loss_is_that_of_knowing_nothing(made, ax):
    result = made["landscape"]
    plot(result, ax, pair=1)
    bold = max(ax.collections, key=lambda c: max(c.get_linewidths(), default=0))
    assert bold.levels.tolist() == [np.log(10)]


def test_slices_go_through_the_weights_along_each_direction(made, ax):
    result = made["landscape"]
    lines = [line for line in plot(result, ax, view="slices").lines]
    slices = [line for line in lines if len(line.get_xdata()) == 5]
    assert len(slices) == 4 + 1  # and their mean
    along = result.select((result.pair == 1) & (result.a == 0))
    assert any(np.allclose(line.get_ydata(), along.nll) for line in slices)
    (mean,) = (line for line in slices if line.get_label() == "mean")
    np.testing.assert_allclose(mean.get_ydata()[2], 0.5)


def test_models_share_one_scale(made):
    result = made["landscape"]
    larger = type(result)(**{**vars(result), "l2": 3 * result.l2})
    figure = panel([result, larger], quantity="l2")
    images = [ax.images[0] for ax in figure.axes[:2]]
    assert {image.get_clim() for image in images} == {(1.0, 9.0)}
    assert len(figure.axes) == 3  # and the bar


def test_in_polar_coordinates_the_last_checkpoint_is_the_middle(made, ax):
    result = made["trajectory"]
    plot(result, ax, view="polar")
    points = np.array([line.get_xydata()[0] for line in ax.lines if line.get_marker() == "o"])
    np.testing.assert_allclose(points[[0, -1]], [[1, 0], [0, 0]])
    np.testing.assert_allclose(np.hypot(*points.T), result.radius)
    np.testing.assert_allclose(np.arctan2(*points[1:3, ::-1].T), result.angle[1:3])
