"""Titles stand where Matplotlib would place them, whatever else stands above the axes."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from visprism import panel
from visprism.drawing.style import paper_style
from visprism.drawing.titles import set_titles


def height(draw, place):
    """The height of the title, in pixels above the upper edge of the axes."""
    with paper_style():
        figure = Figure((2.5, 2))
        ax = figure.subplots()
        draw(ax)
        place(ax)
        figure.draw_without_rendering()
    return ax.title.get_window_extent().y0 - ax.bbox.y1


def large_values(ax):
    ax.plot([0, 1], [0, 3e7])
    ax.tick_params(axis="y", pad=-40)  # the factor reaches below the title


def small_differences(ax):
    ax.plot([0, 1], 1000 + np.array([0, 1e-3]))
    ax.tick_params(axis="y", pad=-40)


def ticks_above(ax):
    ax.plot([0, 1])
    ax.xaxis.tick_top()


def label_above(ax):
    ax.plot([0, 1])
    ax.set_xlabel("Depth")
    ax.xaxis.set_label_position("top")


def twin_of_large_values(ax):
    ax.plot([0, 1])
    ax.twinx().plot([0, 3e7])


def inset_with_ticks_above(ax):
    ax.plot([0, 1])
    ax.inset_axes((0, 0.5, 1, 0.5)).xaxis.tick_top()


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: ax.plot([0, 1]),
        large_values,
        small_differences,
        ticks_above,
        label_above,
        twin_of_large_values,
        inset_with_ticks_above,
    ],
)
@pytest.mark.parametrize("name", ["g" * 34, "a"])
def test_the_title_stands_where_matplotlib_places_it(draw, name):
    ours = height(draw, lambda ax: set_titles([ax], [name], width=3.0))
    theirs = height(draw, lambda ax: ax.set_title(name))
    assert ours == theirs


@pytest.mark.parametrize("draw", [ticks_above, label_above, inset_with_ticks_above])
def test_something_above_the_axes_moves_the_title(draw):
    """So that the test before compares heights that differ."""
    place = lambda ax: ax.set_title("a")  # noqa: E731
    assert height(draw, place) > height(lambda ax: ax.plot([0, 1]), place) + 5


def test_ends_of_the_axis_that_models_share_decide(made):
    """A factor of the second model's values stands above the first one, and moves its title."""
    result, name = made["high_frequency"], "g" * 60
    large = replace(result, relative=1e9 * result.relative)
    heights = []
    for second in (result, large):
        figure = panel({name: result, "b": second})
        figure.draw_without_rendering()
        heights.append(figure.axes[0].title.get_position()[1])
    assert heights[0] == 1 < heights[1]
