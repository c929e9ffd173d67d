"""Panels: several models side by side, ready for a paper; and files that do not change."""

from dataclasses import replace
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image

from visprism import InputError, panel, plot, save_figure
from visprism.drawing import shapes
from visprism.drawing.registry import frame_of
from visprism.drawing.save import render_figure, settle_layout
from visprism.drawing.style import paper_style


def models(result, number):
    """The same result of several models."""
    return [result.with_provenance(model=f"net:{i}") for i in range(number)]


def test_each_model_has_axes_with_its_name_and_scale_and_nothing_is_beyond_the_edge(result):
    before = pyplot.get_fignums()
    figure = panel(models(result, 2))
    first, second = (ax for ax in figure.axes if ax.get_title())
    assert (first.get_title(), second.get_title()) == ("net:0", "net:1")
    assert first.get_shared_y_axes().joined(first, second) == frame_of(result).share
    assert pyplot.get_fignums() == before
    figure.draw_without_rendering()  # as saving does: the layout settles
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0


def test_long_words_beside_an_axis_are_within_the_files(made):
    """Letters are wider at their resolution than at the one of a window."""
    result = made["kind_ablations"]
    words = np.full(len(result), "attention in the last third of all blocks, late minus early")
    figure = panel([replace(result, comparison=words)])
    with paper_style():
        settle_layout(figure)
        figure.set_dpi(mpl.rcParams["savefig.dpi"])
        figure.draw_without_rendering()
        labels = figure.axes[0].get_yticklabels()
        assert min(label.get_window_extent().x0 for label in labels) >= 0


def test_one_color_means_one_value_in_all_models():
    figure = Figure()
    images = [ax.imshow(scale * np.eye(2)) for scale, ax in enumerate(figure.subplots(1, 2), 1)]
    shapes.value_bar(figure, [image.axes for image in images])
    assert [image.get_clim() for image in images] == [(0, 2), (0, 2)]


NAMED = """attacks class_accuracy confusions corruption_errors cues distribution_shift
kind_ablations kind_summary robustness sharpness stability"""


@pytest.mark.parametrize("name", NAMED.split())
def test_names_on_an_axis_are_those_of_its_model_whatever_their_order(made, name):
    first = made[name]
    if name == "attacks":  # those of one size have names
        first = first.select(first.epsilon == first.epsilon[0])
    second = first.select(np.arange(len(first))[::-1])
    axes = panel({"A": first, "B": second}).axes
    for result, ax in zip((first, second), axes, strict=False):
        assert names_of(ax) == names_of(panel([result]).axes[0])
        assert any(names_of(ax))


@pytest.mark.parametrize(
    ("name", "column"), [("hessian_curves", "density"), ("loss_by_distance", "rise")]
)
def test_an_axis_that_models_share_holds_the_values_of_the_second(made, name, column):
    small = made[name]
    large = replace(small, **{column: 3 * np.asarray(getattr(small, column))})
    for first, second in ((small, large), (large, small)):
        low, high = panel({"A": first, "B": second}).axes[1].get_ylim()
        assert low <= 0
        assert high >= getattr(large, column).max()


def test_the_linear_part_of_a_shared_axis_is_below_the_smallest_eigenvalue_of_all(made):
    first = made["hessian_curves"]
    second = replace(first, value=first.value / 100)
    for results in ([first, second], [second, first]):
        transform = panel(results).axes[0].xaxis.get_transform()
        assert transform.linthresh == pytest.approx(0.01)


def names_of(ax):
    """Places and names of the ticks of each axis that has names."""
    return [
        (places := axis.get_majorticklocs().tolist(), form.format_ticks(places))
        for axis in (ax.xaxis, ax.yaxis)
        if isinstance(form := axis.get_major_formatter(), FuncFormatter)
    ]


def test_the_protocol_is_in_the_file(made):
    figure = panel(models(made["high_frequency"], 2))
    text = Image.open(BytesIO(render_figure(figure, "png"))).text["Description"]
    assert "8 images of folder:cats/val" in text
    assert text.count("8 images") == 1


def test_a_figure_has_the_width_of_a_venue(made):
    for number, width, inches in ((1, "column", 3.3), (2, "column", 3.3), (2, "page", 6.9)):
        figure = panel(models(made["spectrum"], number), width=width)
        assert figure.get_figwidth() == pytest.approx(inches)
    with pytest.raises(InputError, match="width must be one of column, page, got 'wide'"):
        panel([made["spectrum"]], width="wide")


def test_a_model_whose_maps_are_single_pixels_has_empty_axes(made):
    none = made["high_frequency"].select(made["high_frequency"].depth > 1)
    figure = panel({"tiny": none})
    assert not figure.legends
    assert [ax.get_title() for ax in figure.axes] == ["tiny"]


def test_names_are_drawn_as_they_are(made):
    name = "<script>$\\frac$</script>"  # no formula that matplotlib could read
    figure = panel([made["high_frequency"].with_provenance(model=name, data=name)])
    assert figure.axes[0].get_title().replace("\n", "") == name
    assert b"<script" not in render_figure(figure, "svg")


def test_results_of_two_types_are_refused(made):
    with pytest.raises(InputError, match=r"got Costs, Spectrum\. Make one panel for each"):
        panel([made["spectrum"], made["costs"]])


def test_a_mapping_of_results_is_plotted_side_by_side_and_gives_an_array_of_axes(made):
    first, before = made["variances"], set(pyplot.get_fignums())
    axes = plot({"A": first, "B": first.select(first.depth > 0)})
    assert isinstance(axes, np.ndarray)
    assert [ax.get_title() for ax in axes] == ["A", "B"]
    assert set(pyplot.get_fignums()) - before == {axes[0].figure.number}
    pyplot.close(axes[0].figure)
    line = axes[1].lines[0]
    np.testing.assert_array_equal(line.get_xdata(), first.depth[first.depth > 0])


def test_the_same_figure_gives_the_same_bytes_whatever_the_user_has_set(made, tmp_path):
    first = save_figure(panel([made["spectrum"]]), tmp_path / "a")
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "x", "axes.grid": True}):
        second = save_figure(panel([made["spectrum"]]), tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg", ".pdf"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    png, svg, pdf = first  # without a date
    assert set(Image.open(png).text) == {"Description"}
    assert "dc:date" not in svg.read_text()
    assert b"CreationDate" not in pdf.read_bytes()


def test_a_failure_leaves_nothing_behind(made, tmp_path):
    figure = panel([made["kind_summary"]])
    figure.axes[0].text(0, 0, "$\\frac$")  # breaks when it is drawn
    with pytest.raises(ValueError, match="frac"):
        save_figure(figure, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
