"""Panels: several models side by side, ready for a paper; and files that do not change."""

import matplotlib as mpl
import pytest
from matplotlib import pyplot

from visprism.core.errors import InputError
from visprism.figures import panel, save_figure
from visprism.figures.registry import frame_of


def models(result, number):
    """The same result of several models."""
    return [result.with_provenance(model=f"net:{i}") for i in range(number)]


@pytest.mark.parametrize("number", [1, 4])
def test_there_are_axes_for_each_model_with_its_name_and_one_vertical_scale(result, number):
    before = pyplot.get_fignums()
    figure = panel(models(result, number))
    axes = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in axes] == [f"net:{i}" for i in range(number)]
    shared = [axes[0].get_shared_y_axes().joined(axes[0], ax) for ax in axes[1:]]
    assert shared == [frame_of(result).share] * (number - 1)
    assert pyplot.get_fignums() == before


def test_a_key_of_several_lines_takes_no_room_from_the_axes(made):
    result = made["high_frequency"]
    heights = []
    for keep in (result.kind == "mlp", result.depth >= 0):
        figure = panel([result.select(keep)])
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_position().height * figure.get_figheight())
    assert heights[1] == pytest.approx(heights[0], rel=0.05)


def test_titles_can_be_given(made):
    figure = panel(models(made["costs"], 2), names=["A", "B"])
    assert [ax.get_title() for ax in figure.axes] == ["A", "B"]


def test_the_protocol_stands_below(made):
    told = panel(models(made["high_frequency"], 2)).get_supxlabel()
    assert "8 images of folder:cats/val" in told.replace("\n", " ")
    assert told.count("8 images") == 1


@pytest.mark.parametrize("number", [1, 3])
def test_there_is_one_colour_bar_and_one_legend(made, number):
    spectra = panel(models(made["spectrum"], number))
    assert [ax.get_ylabel() for ax in spectra.axes].count("Normalised depth") == 1
    depths = panel(models(made["high_frequency"], number))
    (legend,) = depths.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "stem",
        "conv",
        "attention",
        "mlp",
        "downsample",
        "attention span",
        "subsampling span",
    ]


@pytest.mark.parametrize("number", [1, 3])
def test_nothing_is_drawn_beyond_the_edge(result, number):
    figure = panel(models(result, number))
    figure.draw_without_rendering()  # as saving does: the layout settles
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height


def test_a_model_whose_maps_are_single_pixels_has_empty_axes(made):
    none = made["high_frequency"].select(made["high_frequency"].depth > 1)
    figure = panel([none], names=["tiny"])
    assert not figure.legends
    assert [ax.get_title() for ax in figure.axes] == ["tiny"]


# The first is no formula that matplotlib could read.
@pytest.mark.parametrize("name", ["$\\frac$", "<script>alert(1)</script>"])
def test_names_are_drawn_as_they_are(made, tmp_path, name):
    figure = panel([made["high_frequency"].with_provenance(model=name, data=name)])
    assert figure.axes[0].get_title().replace("\n", "") == name
    svg = save_figure(figure, tmp_path / "x")[1].read_text()
    assert "<script" not in svg


def test_no_result_is_refused():
    with pytest.raises(InputError, match="results of one type, got none"):
        panel([])


def test_results_of_two_types_are_refused(made):
    with pytest.raises(InputError, match="got Costs, Spectrum; make one panel for each"):
        panel([made["spectrum"], made["costs"]])


def test_names_that_are_too_few_are_refused(made):
    with pytest.raises(InputError, match="got 1 names for 2 results; give one for each"):
        panel(models(made["tally"], 2), names=["A"])


def test_the_same_figure_gives_the_same_bytes_whatever_the_user_has_set(made, tmp_path):
    first = save_figure(panel([made["spectrum"]]), tmp_path / "a")
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "x", "axes.grid": True}):
        second = save_figure(panel([made["spectrum"]]), tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg", ".pdf"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_files_carry_no_date(made, tmp_path):
    png, svg, pdf = save_figure(panel([made["tally"]]), tmp_path / "a")
    assert b"tEXt" not in png.read_bytes()
    assert "dc:date" not in svg.read_text()
    assert b"CreationDate" not in pdf.read_bytes()


def test_a_failure_leaves_nothing_behind(made, tmp_path):
    figure = panel([made["tally"]])
    figure.axes[0].text(0, 0, "$\\frac$")  # breaks when it is drawn
    with pytest.raises(ValueError, match="frac"):
        save_figure(figure, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
