"""What holds for every figure: axes and style are borrowed, the page is left as it was."""

from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

from visprism import InputError, Result, figure, panel, plot
from visprism.drawing.registry import frame_of, load_figures
from visprism.drawing.save import render_formats
from visprism.estimates.estimated import Estimated


def test_every_figure_is_tried_here(made):
    load_figures()
    registered = set(plot.registry) - {object, Result}
    shapes = {kind for kind in registered if kind.__module__ == "visprism.table.shapes"}
    kinds = {kind for kind in registered - shapes if kind.__module__.startswith("visprism.")}
    assert {kind.__name__ for kind in kinds} <= {
        type(result).__name__ for result in made.values()
    }


def test_axes_and_settings_are_borrowed_and_two_results_share_the_entries_of_a_legend(
    result, ax
):
    with mpl.rc_context({"lines.linewidth": 7, "font.size": 20}):
        figures, settings = pyplot.get_fignums(), dict(mpl.rcParams)
        assert plot(result, ax) is ax
        assert ax.lines or ax.patches or ax.images or ax.child_axes or ax.collections
        assert all(other.get_label() == "<colorbar>" for other in ax.figure.axes[1:])
        labels = labels_of(ax)
        assert len(labels) == len(set(labels))
        plot(result, ax)
        assert labels_of(ax) == labels
        assert pyplot.get_fignums() == figures
        pyplot.close(plot(result).figure)
        assert dict(mpl.rcParams) == settings


def labels_of(ax):
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


@dataclass(frozen=True)
class Surprise(Result):
    """A result of a plugin's own."""

    x: np.ndarray


def test_an_unknown_result_is_refused_with_the_way_out(ax):
    with pytest.raises(InputError, match="Surprise has no figure: its numbers"):
        plot(Surprise(x=np.zeros(1)), ax)


def test_a_plugin_adds_a_figure_with_one_decorator(ax):
    @dataclass(frozen=True)
    class Ours(Surprise):
        """Another."""

    @figure(width=1.5)
    def _(result: Ours, ax):
        ax.plot(result.x, result.x)
        return ax

    ours = Ours(x=np.arange(3.0))
    assert plot(ours, ax).lines[0].get_xdata().tolist() == [0, 1, 2]
    assert frame_of(ours).width == 1.5


@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_values_without_a_logarithm_can_be_drawn(made, nothing):
    values = np.full(len(made["variances"]), nothing)
    empty = replace(made["variances"], variance=Estimated(values))
    assert empty.has_figure() != np.isnan(nothing)
    figure = panel([empty])
    render_formats(figure, ["svg", "png"])
    assert figure.axes[0].get_yscale() == "linear"


def test_the_axis_of_error_rates_is_within_0_and_1(made):
    wrong = replace(made["risk_coverage"], risk=np.ones(len(made["risk_coverage"])))
    assert panel([wrong]).axes[0].get_ylim() == (0, 1)
