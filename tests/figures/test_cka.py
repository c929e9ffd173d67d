"""The figures of CKA show each pair in its place, and the stages."""

from dataclasses import replace

import numpy as np
import pytest
from internals import FAINT, SIMILARITY

from visprism import plot


def cells(ax):
    """(column, row) of each cell -> its color."""
    return {patch.get_xy(): patch.get_facecolor() for patch in ax.patches}


@pytest.mark.parametrize("quantity", ["cka", "biased"])
def test_each_pair_has_the_color_of_its_number(made, ax, quantity):
    result = made["similarity"]
    plot(result, ax, quantity=quantity)
    values = getattr(result, quantity).reshape(5, 5)
    assert cells(ax) == {(j, i): SIMILARITY(v) for (i, j), v in np.ndenumerate(values)}
    assert ax.patches[1].get_gid() == f"tip:stem · conv1 · {values[0, 1]:.2f}"


def test_a_pair_without_a_defined_number_is_gray(made, ax):
    result = made["similarity"]
    defined = (result.block != "attn") & (result.other != "attn")
    plot(replace(result, defined=defined), ax)
    gray = {place for place, color in cells(ax).items() if color[0] == color[1] == color[2]}
    assert gray == {(3, i) for i in range(5)} | {(i, 3) for i in range(5)}
    assert ax.patches[3].get_gid() == "tip:stem · attn · not defined"
    assert SIMILARITY(0.0) != FAINT


def test_lines_part_the_stages_and_blocks_are_named(made, ax):
    plot(made["similarity"], ax)
    places = [line.get_xydata()[0].tolist() for line in ax.lines]
    assert places == [[2, 0], [0, 2]]  # down, and across: stage 1 begins at the third block
    names = list(dict.fromkeys(made["similarity"].block.tolist()))
    for axis in (ax.xaxis, ax.yaxis):
        assert axis.get_ticklocs().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]  # middles of cells
        assert [label.get_text() for label in axis.get_ticklabels()] == names


def test_a_pair_of_stages_says_its_mean_and_what_distance_does_not_explain(made, ax):
    result = made["structure"]
    structure = replace(
        result, cka=np.array([np.nan, 0.5, 0.25]), excess=np.array([0, -0.001, 0.1])
    )
    plot(structure, ax)
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert texts == {
        (0.5, 0.5): "\N{EN DASH}",
        (1.5, 0.5): "0.50\n+0.00",
        (0.5, 1.5): "0.50\n+0.00",
        (1.5, 1.5): "0.25\n+0.10",
    }
