"""The figures of landscapes show the numbers of the result."""

import numpy as np
from internals import CHANCE_POSITION, LossScale

from visprism import panel, plot

# The scale.


def test_the_scale_is_linear_up_to_knowing_nothing():
    scale, chance = LossScale(10), np.log(10)
    np.testing.assert_allclose(
        scale([0, chance / 3, chance]), [0, CHANCE_POSITION / 3, CHANCE_POSITION]
    )


def test_beyond_it_is_logarithmic_and_ends():
    scale, chance = LossScale(10), np.log(10)
    np.testing.assert_allclose(
        scale([10 * chance, 100 * chance]), [(1 + CHANCE_POSITION) / 2, 1]
    )
    assert scale(1e9 * chance) == 1


def test_it_rises_everywhere_and_can_be_inverted():
    scale = LossScale(100)
    losses = np.linspace(0, 30, 500)
    assert (np.diff(scale(losses)) > 0).all()
    np.testing.assert_allclose(scale.inverse(scale(losses)), losses, atol=1e-9)


def test_what_is_no_number_is_masked():
    assert LossScale(10)([1.0, np.inf, np.nan]).mask.tolist() == [False, True, True]


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


# Surfaces.


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
