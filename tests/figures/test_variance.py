"""The figure of the variance shows the numbers of the result, absolute or scale-free."""

from dataclasses import replace

import numpy as np
import pytest

from visprism import panel, plot
from visprism.estimates.estimated import Estimated


@pytest.mark.parametrize("quantity", ["variance", "relative"])
def test_the_quantity_that_is_asked_for_is_drawn_against_depth(made, ax, quantity):
    variances = made["variances"]
    path = plot(variances, ax, quantity=quantity).lines[0]
    np.testing.assert_array_equal(path.get_xdata(), variances.depth)
    np.testing.assert_array_equal(path.get_ydata(), getattr(variances, quantity))


def test_the_axis_is_logarithmic_and_labeled_in_plain_numbers(made):
    figure = panel([made["variances"]])
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    ticks = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
    labels = {label.get_text() for label in ticks} - {""}
    assert axis.get_scale() == "log"
    assert {"1", "10"} <= labels
    assert all(float(label) > 0 for label in labels)


def test_a_map_of_one_position_has_no_variance_and_leaves_a_gap(made, ax):
    variances = made["variances"]
    gap = Estimated(np.where(np.arange(5) == 4, np.nan, variances.variance))
    plot(type(variances)(**{**vars(variances), "variance": gap}), ax)
    ax.figure.canvas.draw()
    assert ax.get_ylim()[1] < 10  # the other four are no more than 2


@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_feature_maps_without_variance_can_be_drawn(made, nothing):
    variances = made["variances"]
    figure = panel([replace(variances, variance=Estimated(np.full(len(variances), nothing)))])
    figure.draw_without_rendering()
    assert figure.axes[0].get_yscale() == "linear"
