"""The figures of singular values show the numbers of the results."""

from dataclasses import replace

import numpy as np
import pytest

from visprism import panel, plot
from visprism.drawing.style import DEPTH


@pytest.mark.parametrize(
    ("level", "expected"), [("tokens", [1, 0.5, 0.1]), ("images", [1, 0.2])]
)
def test_there_is_a_curve_for_each_block_where_it_has_values(made, ax, level, expected):
    lines = plot(made["singular_values"], ax, level=level).lines
    assert [line.get_label() for line in lines] == ["stem", "conv1", "down", "attn", "mlp"]
    for line, depth in zip(lines, (0, 0.25, 0.5, 0.75, 1), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), expected)
        np.testing.assert_array_equal(line.get_xdata(), range(1, len(expected) + 1))
        assert line.get_color() == DEPTH(float(depth))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert level in ax.get_xlabel()


@pytest.mark.parametrize("quantity", ["token_rank", "image_participation"])
def test_ranks_are_drawn_against_depth(made, ax, quantity):
    ranks = made["effective_ranks"]
    line = plot(ranks, ax, quantity=quantity).lines[0]
    np.testing.assert_array_equal(line.get_xdata(), ranks.depth)
    np.testing.assert_array_equal(line.get_ydata(), getattr(ranks, quantity))


@pytest.mark.parametrize("order", [1, -1])
def test_sizes_begin_at_zero_and_those_of_every_model_are_shown(made, order):
    ranks = made["effective_ranks"]
    larger = replace(ranks, token_rank=20 * ranks.token_rank)
    results = [ranks, larger][::order]
    first, second = panel(dict(zip("ab", results, strict=True))).axes[:2]
    for ax in (first, second):
        low, high = ax.get_ylim()
        assert low == 0
        assert 180 < high < 220
