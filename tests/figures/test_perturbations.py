"""The figures of ablations, noise, attacks and cue conflicts show their numbers in place."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from visprism import plot
from visprism.drawing.style import color_of


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


def test_means_by_kind_have_their_intervals(made, ax):
    result = made["kind_ablations"]
    plot(result, ax)
    spans = [c.get_segments()[0][:, 0].tolist() for c in ax.collections]
    expected = np.stack([result.drop.low, result.drop.high], axis=1)
    np.testing.assert_allclose(spans, expected)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["attention (blocks)", "mlp (blocks)", "attention minus mlp (blocks)"]


def test_stages_are_parted_half_way_between_their_blocks(made, ax):
    plot(made["ablations"], ax)
    dashed = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert dashed == []  # all whole blocks are in stage 1
    assert not ax.texts


@pytest.mark.parametrize("beside", ["nmi", "distance"])
def test_attention_stands_over_the_same_depth(made, ax, beside):
    attention = made["attention_statistics"]
    plot(made["ablations"], ax, attention=attention, beside=beside)
    other = next(a for a in ax.figure.axes if a is not ax)
    x, y = other.lines[0].get_data()
    np.testing.assert_allclose(x, [0.75, 1.0])
    values = getattr(attention, beside)
    np.testing.assert_allclose(y, [values[:2].mean(), values[2:].mean()])


def test_joint_ablations_stand_beside_the_sum_of_each(made, ax):
    result = made["joint_ablations"]
    plot(result, ax)
    assert set(markers(ax)) == {(2, 0.2), (4, 0.6)}
    (spans,) = ax.collections
    assert [s.tolist() for s in spans.get_segments()] == [
        [[2, 0.1], [2, 0.4]],
        [[4, 0.5], [4, 0.7]],
    ]
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_array_equal(lines["Sum of single drops"], result.sum_of_drops)
    np.testing.assert_array_equal(lines["Joint ablation"], result.drop)


def test_the_drop_stands_over_the_frequency_of_the_noise(made, ax):
    result = made["frequency_robustness"]
    plot(result, ax)
    curve = max(ax.lines, key=lambda line: len(line.get_xdata()))
    np.testing.assert_array_equal(curve.get_xdata(), result.frequency)
    np.testing.assert_array_equal(curve.get_ydata(), result.drop)
    (area,) = ax.collections
    corners = area.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(0.65)
    assert ax.get_ylim()[0] == 0


def test_the_map_has_each_error_at_its_frequency(made, ax):
    result = made["sensitivity"]
    plot(result, ax)
    (image,) = ax.images
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-3, 3, -3, 3)
    errors = image.get_array()
    for i, j, error in zip(result.vertical, result.horizontal, result.error, strict=True):
        assert errors[(i + 2) // 2, (j + 2) // 2] == error


def test_accuracy_stands_over_the_strength_of_attacks_without_a_band(made, ax):
    result = made["attacks"]
    plot(result, ax)
    points = markers(ax)
    assert len(points) == 4
    for i in range(4):
        assert (round(result.epsilon[i], 6), result.accuracy[i]) in points
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert labels == ["FGSM, L∞", "PGD, L∞"]
    spans = [s[:, 1].tolist() for c in ax.collections for s in c.get_segments()]
    order = [0, 1, 2, 3]  # FGSM, then PGD, by strength
    assert spans == [
        [pytest.approx(v) for v in (result.accuracy.low[i], result.accuracy.high[i])]
        for i in order
    ]
    ax.clear()
    plot(result.select(np.isfinite(result.frequency)), ax)
    assert list(markers(ax)) == [(0.5, 0.4)]


def test_each_category_has_its_bias_and_interval(made, ax):
    result = made["cues"]
    plot(result, ax)
    assert list(markers(ax)) == [(0.75, 2), (0.25, 1), (0.5, 0)]
    spans = [c.get_segments()[0][:, 0].tolist() for c in ax.collections]
    assert spans == list(map(list, zip(result.bias.low, result.bias.high, strict=True)))
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["cat", "car", "all"]


def test_a_map_of_one_row_is_drawn(made, ax):
    result = made["sensitivity"]
    plot(result.select(result.vertical == 0), ax)
    (image,) = ax.images
    assert image.get_extent() == [-3, 3, -0.5, 0.5]
    assert image.get_array().shape == (1, 3)
