"""The figures of landscapes show the numbers of the result."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from visprism import panel, plot
from visprism.analyses.loss.landscape import project_isometric
from visprism.drawing.losses import CHANCE_POSITION, LOSSES, LossScale
from visprism.loss.planes import Projection

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


def test_colors_end_and_grays_begin_at_knowing_nothing():
    below, above = (np.array(LOSSES(CHANCE_POSITION + step))[:3] for step in (-0.01, 0.01))
    assert np.ptp(above) < 0.02 < np.ptp(below)


# Contours.


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


def test_another_pair_and_quantity_can_be_drawn(made, ax):
    result = made["landscape"]
    (image,) = plot(result, ax, pair=1, quantity="accuracy").images
    np.testing.assert_allclose(image.get_array(), result.table("accuracy", 1))
    assert image.get_clim() == (0, 1)


def test_a_path_is_drawn_through_its_points(made, ax):
    path = Projection(
        snapshot=np.arange(2), a=np.array([0.5, 0.0]), b=np.array([0.2, 0.0]), share=np.ones(2)
    )
    lines = plot(made["landscape"], ax, path=path).lines
    assert any(np.array_equal(line.get_xdata(), path.a) for line in lines)


# Surfaces.


def test_a_surface_has_a_cell_for_each_four_points_in_its_color(made, ax):
    result = made["landscape"]
    plot(result, ax, view="surface", pair=1)
    (cells,) = (c for c in ax.collections if isinstance(c, PolyCollection))
    assert len(cells.get_paths()) == 16
    heights = LossScale(10)(result.table("nll", 1))
    means = (heights[1:, 1:] + heights[1:, :-1] + heights[:-1, 1:] + heights[:-1, :-1]) / 4
    losses = LossScale(10)(cells.get_array())
    np.testing.assert_allclose(np.sort(losses), np.sort(means.ravel()))


def test_what_stands_before_hides_what_stands_behind():
    ends = (-1.0, 1.0)
    corners = [project_isometric(*map(np.array, (x, y, 0.5))) for x in ends for y in ends]
    lowest = min(corners, key=lambda place: place[1])  # in the drawing
    assert lowest[2] == max(place[2] for place in corners)


def test_a_higher_point_is_drawn_higher():
    low, high = (
        project_isometric(np.array(0.3), np.array(-0.2), np.array(z)) for z in (0.2, 0.6)
    )
    assert low[0] == high[0]
    assert low[1] < high[1]


# Slices.


def test_slices_go_through_the_weights_along_each_direction(made, ax):
    result = made["landscape"]
    lines = [line for line in plot(result, ax, view="slices").lines]
    slices = [line for line in lines if len(line.get_xdata()) == 5]
    assert len(slices) == 4 + 1  # and their mean
    along = result.select((result.pair == 1) & (result.a == 0))
    assert any(np.allclose(line.get_ydata(), along.nll) for line in slices)
    (mean,) = (line for line in slices if line.get_label() == "mean")
    np.testing.assert_allclose(mean.get_ydata()[2], 0.5)


def test_a_line_is_a_slice_whatever_the_view(made, ax):
    result = made["landscape"]
    plot(result.select((result.b == 0) & (result.pair == 0)), ax, view="surface")
    assert len(ax.images) == 0
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 0.5 + 2 * np.linspace(-1, 1, 5) ** 2)


# Panels.


def test_models_share_one_scale(made):
    result = made["landscape"]
    larger = type(result)(**{**vars(result), "l2": 3 * result.l2})
    figure = panel([result, larger], quantity="l2")
    images = [ax.images[0] for ax in figure.axes[:2]]
    assert {image.get_clim() for image in images} == {(1.0, 9.0)}
    assert len(figure.axes) == 3  # and the bar


@pytest.mark.parametrize("classes", [10, 100])
def test_the_bar_has_a_mark_at_knowing_nothing(made, classes):
    result = made["landscape"]
    other = type(result)(**{**vars(result), "classes": classes})
    figure = panel([result, other])
    labels = [label.get_text() for label in figure.axes[-1].get_yticklabels()]
    assert ("log 10 = 2.3" in labels) == (classes == 10)
    assert ("log K" in labels) == (classes == 100)


def test_slices_have_no_bar(made):
    figure = panel([made["landscape"]], view="slices")
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 1
