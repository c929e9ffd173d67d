"""Figures show their numbers in their places, in the colors of kinds, depths and values."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import visprism as vp
from visprism import plot
from visprism.drawing.losses import CHANCE_POSITION, loss_scale
from visprism.drawing.style import (
    ATTENTION_SHADE,
    FAINT,
    KIND_COLORS,
    SIMILARITY,
    SUBSAMPLING_SHADE,
    color_of,
)
from visprism.estimates.estimated import Estimated


def bars(ax, label):
    """The bars with this label, left to right."""
    return [p for c in ax.containers if c.get_label() == label for p in c]


def test_a_slab_is_as_high_as_the_root_of_its_grid(made, ax):
    plot(made["costs"], ax)
    (stem,), (attention,) = bars(ax, "stem"), bars(ax, "attention")
    assert stem.get_height() == 1  # 16 x 16
    assert attention.get_height() == 0.5  # 4 x 4: a quarter of the side
    assert stem.get_y() == -0.5  # about the middle


def spans(ax, color):
    """Left and right ends of the shaded spans of one color, from the artists."""
    shaded = [p for p in ax.patches if to_hex(p.get_facecolor()) == color.lower()]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in shaded]


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
    values = Estimated(np.where(defined, result.cka, np.nan))
    plot(replace(result, cka=values), ax)
    gray = {place for place, color in cells(ax).items() if color[0] == color[1] == color[2]}
    assert gray == {(3, i) for i in range(5)} | {(i, 3) for i in range(5)}
    assert ax.patches[3].get_gid() == "tip:stem · attn · not defined"
    assert SIMILARITY(0.0) != FAINT


def test_the_scale_is_linear_up_to_knowing_nothing_then_logarithmic_and_ends():
    scale, chance = loss_scale(10), np.log(10)
    values = scale(chance * np.array([0, 1 / 3, 1, 10, 100, 1e9]))
    expected = [0, CHANCE_POSITION / 3, CHANCE_POSITION, (1 + CHANCE_POSITION) / 2, 1, 1]
    np.testing.assert_allclose(values, expected)
    losses = np.linspace(0, 30, 500)
    np.testing.assert_allclose(scale.inverse(scale(losses)), losses, atol=1e-9)


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


def rectangles(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_each_cell_has_the_color_and_the_number_of_its_error(made, ax):
    plot(made["robustness"], ax)
    cells = {p.get_xy(): (p.get_width(), p.get_facecolor()) for p in rectangles(ax)}
    expected = {(0, 2): (2, 0.1), (0, 1): (1, 0.2), (1, 1): (1, 0.7), (0, 0): (1, 0.15),
                (1, 0): (1, 0.4)}  # fmt: skip
    assert cells == {k: (w, SIMILARITY(1 - (1 - e))) for k, (w, e) in expected.items()}
    texts = {t.get_position(): t.get_text() for t in ax.texts}
    assert texts[1, 2.5] == "10"
    assert texts[1.5, 1.5] == "70"
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["JPEG compression", "Fog", "Clean"]


def test_the_reliability_diagram_is_a_result_of_the_study(predictions):
    results = (vp.calibration(predictions), vp.reliability(predictions))
    entry = vp.Entry(models=("net",), analysis="calibration", results=results)
    study = vp.Study(("net",), (entry,))
    assert study["net"]["calibration"] is results[0]
    assert study["net"]["reliability"] is study["reliability"]["net"] is results[1]
    assert plot(study["net"]["reliability"]).get_ylabel() == "Accuracy"
    for drawn in (study["calibration"], study["net"]["calibration"]):
        with pytest.raises(vp.InputError, match=r'no figure\. Draw study\["reliabil'):
            plot(drawn)


@pytest.fixture
def predictions():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(60, 4, generator=generator)
    return vp.Predictions(logits, logits.argmax(1).roll(1))


def markers(ax):
    """Each point that is drawn alone, or with its interval."""
    return {
        (round(float(x), 6), round(float(y), 6)): to_hex(line.get_color())
        for line in ax.lines
        if line.get_marker() not in ("None", "none", None, "")
        for x, y in line.get_xydata()
    }


def test_each_lesion_stands_at_its_depth_in_the_color_of_its_kind(made, ax):
    result = made["ablations"]
    plot(result, ax)
    colors = markers(ax)
    for i in range(1, 4):
        place = (round(result.depth[i], 6), round(result.drop[i], 6))
        assert colors[place] == color_of(result.kind[i]).lower()
    assert (0.75, 0.05) in colors  # a head of the attention
    assert ax.get_ylabel() == "Accuracy drop, one block ablated"
    spans = [collection.get_segments()[0][:, 1] for collection in ax.collections]
    np.testing.assert_allclose(spans, [[0.06, 0.13], [0.34, 0.45], [-0.02, 0.02]])
    plot(result, ax, quantity="nll_rise")
    assert (0.75, 1.5) in markers(ax)


def test_convolutions_are_drawn_apart_from_whole_blocks(made, ax):
    result = made["ablations"]
    convolution = (round(result.depth[0], 6), 0.3)
    plot(result, ax)
    assert convolution not in markers(ax)
    ax.clear()
    plot(result, ax, ablated="convolution")
    assert list(markers(ax)) == [convolution]
    assert ax.get_ylabel() == "Accuracy drop, one convolution ablated"


def test_the_map_has_each_error_at_its_frequency(made, ax):
    result = made["sensitivity"]
    plot(result, ax)
    (mesh,) = [m for m in ax.collections if m.get_array() is not None]
    assert mesh.get_clim() == (0, 1)
    assert (*ax.get_xlim(), *ax.get_ylim()) == (-3, 3, -3, 3)
    errors = mesh.get_array()
    for i, j, error in zip(result.vertical, result.horizontal, result.error, strict=True):
        assert errors[(i + 2) // 2, (j + 2) // 2] == error


def test_components_are_drawn_in_color_row_by_row(made, ax):
    filters = made["patch_filters"]
    images = plot(filters, ax).images
    assert len(images) == 9
    for i, image in enumerate(images, 1):
        values = filters.value[filters.component == i].reshape(3, 2, 4)
        colors = image.get_array()
        for channel in range(3):  # -1 is dark, 0 gray, 1 bright
            np.testing.assert_allclose(colors[..., channel], (values[channel] + 1) / 2)
    lefts, tops = zip(*((i.get_extent()[0], i.get_extent()[3]) for i in images), strict=True)
    assert len(set(lefts)) == 7
    assert lefts[7:] == lefts[:2]
    assert [len(set(tops[:7])), tops[0] < tops[7], ax.yaxis_inverted()] == [1, True, True]


def test_maps_stand_where_their_position_stands_at_most_7_a_side(made, ax):
    similarity = made["positional_similarity"]
    images = plot(similarity, ax).images
    assert len(images) == 7 * 3
    maps = similarity.cosine.reshape(8, 3, 8, 3)
    rows = [0, 1, 2, 4, 5, 6, 7]
    for i, image in enumerate(images):
        np.testing.assert_array_equal(image.get_array(), maps[rows[i // 3], i % 3])
        left, right, bottom, top = image.get_extent()
        assert (3 * left, 7 * top) == pytest.approx((i % 3, i // 3))
        assert left < right < left + 1 / 3
        assert top < bottom < top + 1 / 7
    assert ax.get_aspect() == pytest.approx(8 / 3)
    assert ax.yaxis_inverted()
