"""The figures of the Fourier analysis show the numbers of the result."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba
from scipy import stats

from visprism import plot
from visprism.drawing.style import (
    ATTENTION_SHADE,
    DEPTH,
    KIND_COLORS,
    SUBSAMPLING_SHADE,
)
from visprism.estimates.estimated import Estimated

T_OF_8_IMAGES = stats.t.ppf(0.975, 7)


def spans(ax, color):
    """Left and right ends of the shaded spans of one color, from the artists."""
    shaded = [p for p in ax.patches if to_hex(p.get_facecolor()) == color.lower()]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in shaded]


def test_there_is_a_curve_for_each_block_with_its_numbers(made, ax):
    spectrum = made["spectrum"]
    lines = plot(spectrum, ax).lines
    assert [line.get_label() for line in lines] == ["stem", "conv1", "down", "attn", "mlp"]
    for line in lines:
        rows = spectrum.select(spectrum.block == line.get_label())
        np.testing.assert_array_equal(line.get_ydata(), rows.relative)
        np.testing.assert_array_equal(line.get_xdata(), rows.frequency)


def test_a_curve_has_the_color_of_its_depth(made, ax):
    colors = [line.get_color() for line in plot(made["spectrum"], ax).lines]
    assert colors == [DEPTH(d) for d in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert len(set(colors)) == 5


def test_the_band_is_the_95_percent_interval(made, ax):
    plot(made["spectrum"], ax)
    corners = ax.collections[1].get_paths()[0].vertices  # of conv1: relative 0, -2, -4
    assert corners[:, 1].min() == pytest.approx(-4 - T_OF_8_IMAGES * 0.2)
    assert (1.0, -4 + T_OF_8_IMAGES * 0.2) in [
        pytest.approx(tuple(corner)) for corner in corners
    ]


def test_one_image_has_curves_but_no_bands(made, ax):
    spectrum = made["spectrum"]
    alone = replace(spectrum, relative=Estimated(spectrum.relative))
    plot(alone, ax)
    assert len(ax.lines) == 5
    assert not ax.collections


def test_the_frequency_axis_is_in_units_of_pi(made, ax):
    plot(made["spectrum"], ax)
    assert ax.get_xlim() == (0, 1)
    assert ax.get_xlabel() == "Frequency along each axis (π rad/pixel)"


def test_a_radial_profile_says_so_and_is_shown_to_its_end(made, ax):
    spectrum = made["spectrum"]
    radial = type(spectrum)(
        **{**vars(spectrum), "frequency": 1.4 * spectrum.frequency, "profile": "radial"}
    )
    plot(radial, ax)
    assert ax.get_xlabel() == "Radial frequency (π rad/pixel)"
    assert ax.get_xlim() == (0, 1.4)


def test_the_highest_frequency_is_drawn_against_depth(made, ax):
    ends = made["high_frequency"]
    path = plot(ends, ax).lines[0]
    np.testing.assert_array_equal(path.get_xdata(), ends.depth)
    np.testing.assert_array_equal(path.get_ydata(), ends.relative)
    assert ax.get_ylabel() == "Δ log amplitude, highest\nfrequency to the mean"


def test_the_reference_may_be_the_lowest_frequency(made, ax):
    ends = made["high_frequency"]
    path = plot(ends, ax, reference="lowest").lines[0]
    np.testing.assert_array_equal(path.get_ydata(), ends.relative_lowest)
    assert ax.get_ylabel() == "Δ log amplitude, highest\nfrequency to the lowest frequency"


def test_attention_is_gray_from_the_block_before_to_its_own_depth(made, ax):
    plot(made["high_frequency"], ax)
    assert spans(ax, ATTENTION_SHADE) == [(0.5, 0.75)]


def test_subsampling_is_blue(made, ax):
    plot(made["high_frequency"], ax)
    assert spans(ax, SUBSAMPLING_SHADE) == [(0.25, 0.5)]


def test_an_attention_block_that_subsamples_is_blue_not_gray(made, ax):
    ends = made["high_frequency"]
    plot(type(ends)(**{**vars(ends), "subsampling": ends.kind == "attention"}), ax)
    assert spans(ax, SUBSAMPLING_SHADE) == [(0.5, 0.75)]
    assert spans(ax, ATTENTION_SHADE) == []


def test_points_have_the_color_of_their_kind_and_a_95_percent_bar(made, ax):
    ends = made["high_frequency"]
    plot(ends, ax)
    for i, container in enumerate(ax.containers):
        point, _, (bar,) = container
        assert to_hex(point.get_color()) == KIND_COLORS[ends.kind[i]].lower()
        low, high = bar.get_segments()[0][:, 1]
        assert (low, high) == pytest.approx((ends.relative.low[i], ends.relative.high[i]))


def test_a_kind_of_a_plugin_is_drawn_in_a_color_of_no_other_kind(made, ax):
    ends = made["high_frequency"]
    plot(type(ends)(**{**vars(ends), "kind": np.full(5, "state-space")}), ax)
    color = ax.containers[0][0].get_color()
    assert to_rgba(color) not in {to_rgba(c) for c in KIND_COLORS.values()}
