"""The figures of weights alone show the numbers of the results."""

from dataclasses import replace

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


def test_a_picture_has_the_shape_of_the_kernel(made, ax):
    left, right, bottom, top = plot(made["patch_filters"], ax).images[0].get_extent()
    assert (right - left) / (bottom - top) == pytest.approx(2)
    assert ax.get_aspect() == 1


def test_the_share_of_each_component_stands_below_it(made, ax):
    texts = [text.get_text() for text in plot(made["patch_filters"], ax).texts]
    assert texts[:2] == ["20.0%", "17.8%"]
    assert len(texts) == 9


def test_kernels_of_images_that_have_not_three_colors_are_drawn_in_gray(made, ax):
    filters = made["patch_filters"]
    one = filters.select(filters.channel < 2)
    colors = plot(one, ax).images[0].get_array()
    assert colors.shape == (2, 4, 3)
    np.testing.assert_allclose(colors[..., 1], colors[..., 0])
    np.testing.assert_allclose(colors[..., 2], colors[..., 0])


def test_all_components_fit_when_there_are_more_than_28(made, ax):
    filters = made["patch_filters"]
    last = plot(replace(filters, component=filters.component + 30), ax).images[-1]
    assert last.get_extent()[2] <= ax.get_ylim()[0]


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


def test_all_maps_share_a_scale_whose_middle_is_zero(made, ax):
    images = plot(made["positional_similarity"], ax).images
    assert {(image.norm.vmin, image.norm.vmax) for image in images} == {(-1, 1)}
    assert len({image.cmap.name for image in images}) == 1


def test_each_head_has_a_picture_of_its_weights_on_one_scale(made, ax):
    scores = made["relative_scores"]
    images = plot(scores, ax).images
    assert len(images) == 5
    assert {image.get_clim() for image in images} == {(0, scores.weight.max())}
    for head, image in enumerate(images, 1):
        weights = scores.weight[scores.head == head].reshape(3, 5)
        np.testing.assert_array_equal(image.get_array(), weights)


def test_the_query_stands_in_the_middle_of_its_picture(made, ax):
    plot(made["relative_scores"], ax)
    for image, mark in zip(ax.images, ax.lines, strict=True):
        left, right, bottom, top = image.get_extent()
        assert mark.get_xdata() == pytest.approx([(left + right) / 2])
        assert mark.get_ydata() == pytest.approx([(bottom + top) / 2])


def test_a_head_says_where_it_looks_most(made, ax):
    tips = [patch.get_gid() for patch in plot(made["relative_scores"], ax).patches]
    assert "head 1 · largest weight 0.79 at -1 rows, -2 columns" in tips[0]
    assert "head 2 · largest weight 0.79 at -1 rows, +1 columns" in tips[1]


def test_no_more_than_49_heads_are_drawn(made, ax):
    one = made["relative_scores"]
    assert len(np.unique(one.head)) == 5
    many = replace(
        one,
        **{name: np.tile(getattr(one, name), 11) for name in ("dy", "dx", "score", "weight")},
        head=np.repeat(np.arange(1, 56), 15),
    )
    assert len(plot(many, ax).images) == 49
