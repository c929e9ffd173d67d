"""The figure of the variance shows the numbers of the result, absolute or scale-free."""

from dataclasses import replace

import numpy as np
import pytest
from internals import Estimated

from visprism import panel


def test_the_axis_is_logarithmic_and_labeled_in_plain_numbers(made):
    figure = panel([made["variances"]])
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    ticks = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
    labels = {label.get_text() for label in ticks} - {""}
    assert axis.get_scale() == "log"
    assert {"1", "10"} <= labels
    assert all(float(label) > 0 for label in labels)


@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_feature_maps_without_variance_can_be_drawn(made, nothing):
    variances = made["variances"]
    figure = panel([replace(variances, variance=Estimated(np.full(len(variances), nothing)))])
    figure.draw_without_rendering()
    assert figure.axes[0].get_yscale() == "linear"
