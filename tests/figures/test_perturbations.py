"""The figures of ablations, noise, attacks and cue conflicts show their numbers in place."""

import numpy as np
from internals import color_of
from matplotlib.colors import to_hex

from visprism import plot


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
    (image,) = ax.images
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-3, 3, -3, 3)
    errors = image.get_array()
    for i, j, error in zip(result.vertical, result.horizontal, result.error, strict=True):
        assert errors[(i + 2) // 2, (j + 2) // 2] == error
