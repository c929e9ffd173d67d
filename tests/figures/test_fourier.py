"""The figures of the Fourier analysis show the numbers of the result."""

import pytest
from internals import ATTENTION_SHADE, DEPTH, KIND_COLORS, SUBSAMPLING_SHADE
from matplotlib.colors import to_hex

from visprism import plot


def spans(ax, color):
    """Left and right ends of the shaded spans of one color, from the artists."""
    shaded = [p for p in ax.patches if to_hex(p.get_facecolor()) == color.lower()]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in shaded]


def test_a_curve_has_the_color_of_its_depth(made, ax):
    colors = [line.get_color() for line in plot(made["spectrum"], ax).lines]
    assert colors == [DEPTH(d) for d in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert len(set(colors)) == 5


def test_blocks_have_the_color_of_their_kind_a_shade_behind_and_a_95_percent_bar(made, ax):
    ends = made["high_frequency"]
    plot(ends, ax)
    assert spans(ax, ATTENTION_SHADE) == [(0.5, 0.75)]  # from the block before to its own depth
    assert spans(ax, SUBSAMPLING_SHADE) == [(0.25, 0.5)]
    for i, container in enumerate(ax.containers):
        point, _, (bar,) = container
        assert to_hex(point.get_color()) == KIND_COLORS[ends.kind[i]].lower()
        low, high = bar.get_segments()[0][:, 1]
        assert (low, high) == pytest.approx((ends.relative.low[i], ends.relative.high[i]))
