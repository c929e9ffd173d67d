"""Panels: several models side by side, ready for a paper; and files that do not change."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from visprism import InputError, panel, plot, save_figure
from visprism.drawing import shapes
from visprism.drawing.registry import frame_of


def models(result, number):
    """The same result of several models."""
    return [result.with_provenance(model=f"net:{i}") for i in range(number)]


@pytest.mark.parametrize("number", [4])
def test_there_are_axes_for_each_model_with_its_name_and_one_vertical_scale(result, number):
    before = pyplot.get_fignums()
    figure = panel(models(result, number))
    axes = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in axes] == [f"net:{i}" for i in range(number)]
    shared = [axes[0].get_shared_y_axes().joined(axes[0], ax) for ax in axes[1:]]
    assert shared == [frame_of(result).share] * (number - 1)
    assert pyplot.get_fignums() == before


def test_one_color_means_one_value_in_all_models():
    figure = Figure()
    images = [ax.imshow(scale * np.eye(2)) for scale, ax in enumerate(figure.subplots(1, 2), 1)]
    shapes._picture_bar(figure, [image.axes for image in images])
    assert [image.get_clim() for image in images] == [(0, 2), (0, 2)]


def test_nothing_is_drawn_beyond_the_edge(result):
    figure = panel(models(result, 3))
    figure.draw_without_rendering()  # as saving does: the layout settles
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height


def test_a_model_whose_maps_are_single_pixels_has_empty_axes(made):
    none = made["high_frequency"].select(made["high_frequency"].depth > 1)
    figure = panel({"tiny": none})
    assert not figure.legends
    assert [ax.get_title() for ax in figure.axes] == ["tiny"]


# The first is no formula that matplotlib could read.
@pytest.mark.parametrize("name", ["$\\frac$", "<script>alert(1)</script>"])
def test_names_are_drawn_as_they_are(made, tmp_path, name):
    figure = panel([made["high_frequency"].with_provenance(model=name, data=name)])
    assert figure.axes[0].get_title().replace("\n", "") == name
    svg = save_figure(figure, tmp_path / "x")[1].read_text()
    assert "<script" not in svg


def test_results_of_two_types_are_refused(made):
    with pytest.raises(InputError, match=r"got Costs, Spectrum\. Make one panel for each"):
        panel([made["spectrum"], made["costs"]])


def test_a_mapping_of_results_is_plotted_side_by_side_and_gives_an_array_of_axes(made):
    first = made["variances"]
    axes = plot({"A": first, "B": first.select(first.depth > 0)})
    try:
        assert isinstance(axes, np.ndarray)
        assert [ax.get_title() for ax in axes] == ["A", "B"]
        assert pyplot.get_fignums() == [axes[0].figure.number]
        line = axes[1].lines[0]
        np.testing.assert_array_equal(line.get_xdata(), first.depth[first.depth > 0])
    finally:
        pyplot.close("all")


def test_the_same_figure_gives_the_same_bytes_whatever_the_user_has_set(made, tmp_path):
    first = save_figure(panel([made["spectrum"]]), tmp_path / "a")
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "x", "axes.grid": True}):
        second = save_figure(panel([made["spectrum"]]), tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg", ".pdf"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_failure_leaves_nothing_behind(made, tmp_path):
    figure = panel([made["kind_summary"]])
    figure.axes[0].text(0, 0, "$\\frac$")  # breaks when it is drawn
    with pytest.raises(ValueError, match="frac"):
        save_figure(figure, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
