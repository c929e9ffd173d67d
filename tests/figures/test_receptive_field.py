"""The figures of receptive fields show the numbers of the results."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from visprism import plot


def test_the_size_is_drawn_against_depth_with_its_error(made, ax):
    sizes = made["receptive_field"]
    path = plot(sizes, ax).lines[0]
    np.testing.assert_array_equal(path.get_xdata(), sizes.depth)
    np.testing.assert_array_equal(path.get_ydata(), sizes.sigma)
    _, _, (bar,) = ax.containers[3]
    low, high = bar.get_segments()[0][:, 1]
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 7) * 0.5)  # 8 images
    assert ax.get_ylim()[0] == 0


def test_a_dashed_line_stands_at_the_flat_field(made, ax):
    plot(made["receptive_field"], ax)
    (dashed,) = (line for line in ax.lines if "uniform" in line.get_label())
    assert set(dashed.get_ydata()) == {9.2}


@pytest.mark.parametrize("quantity", ["side_50", "side_95"])
def test_a_side_can_be_drawn_instead(made, ax, quantity):
    sizes = made["receptive_field"]
    plot(sizes, ax, quantity=quantity)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), getattr(sizes, quantity))
    assert "Side of the" in ax.get_ylabel()
    assert not any("uniform" in line.get_label() for line in ax.lines)


def test_each_map_is_drawn_upright_with_its_numbers_side_by_side(made, ax):
    maps = made["receptive_maps"]
    images = plot(maps, ax).images
    assert len(images) == 3
    for image, name in zip(images, ["stem", "conv1", "stages.2.blocks.17.attn"], strict=True):
        rows = maps.select(maps.block == name)
        np.testing.assert_array_equal(image.get_array().ravel(), rows.relative)
        assert image.get_array().shape == (2, 3)
        left, right, bottom, top = image.get_extent()
        assert (right - left, bottom, top) == pytest.approx(
            (1.5, 1, 0)
        )  # in heights of the image
    ends = [image.get_extent()[:2] for image in images]
    assert all(a[1] < b[0] for a, b in pairwise(ends))


def test_names_and_depths_stand_below_and_long_names_keep_their_end(made, ax):
    texts = [text.get_text() for text in plot(made["receptive_maps"], ax).texts]
    assert texts[:4] == ["stem", "0.00", "conv1", "0.25"]
    assert texts[4].startswith("…")
    assert texts[4].endswith("blocks.17.attn")


def test_all_maps_share_one_scale_and_zero_is_its_end(made, ax):
    images = plot(made["receptive_maps"], ax).images
    assert {(image.norm.vmin, image.norm.vmax) for image in images} == {(1e-4, 1)}
    assert images[0].norm(0.0) == 0
