"""The figures of weights alone show the numbers of the results."""

import numpy as np
import pytest

from visprism import plot


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
