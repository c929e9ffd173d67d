"""The figures of outputs show their numbers in their places."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from visprism import panel, plot
from visprism.analyses.predictions.corruptions import percent
from visprism.drawing.style import SIMILARITY
from visprism.estimates.estimated import Estimated


def bars(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_a_bin_is_as_high_as_its_accuracy_and_an_empty_one_has_no_bar(made, ax):
    plot(made["reliability"], ax)
    rectangles = [(b.get_x(), b.get_width(), b.get_height()) for b in bars(ax)]
    np.testing.assert_allclose(
        rectangles, [(0.2, 0.2, 0.3), (0.4, 0.2, 0.4), (0.6, 0.2, 0.6), (0.8, 0.2, 0.8)]
    )
    marks = [line.get_ydata()[0] for line in ax.lines[:-1]]
    np.testing.assert_allclose(marks, [0.3, 0.5, 0.7, 0.95])  # mean confidences
    assert ax.lines[-1].get_xydata().tolist() == [[0, 0], [1, 1]]
    assert ax.texts[0].get_text() == "ECE 11.0%"
    assert ax.texts[0].get_position()[1] > 1  # above all bars
    assert ax.get_ylim()[1] > 1.1


def test_the_histogram_holds_all_images(made, ax):
    plot(made["reliability"], ax, quantity="frequency")
    heights = [b.get_height() for b in bars(ax)]
    assert heights == made["reliability"].frequency.tolist()
    assert sum(heights) == pytest.approx(1)


def test_the_curve_of_risk_is_the_result(made, ax):
    plot(made["risk_coverage"], ax)
    x, y = ax.lines[0].get_data()
    np.testing.assert_array_equal(x, made["risk_coverage"].coverage)
    np.testing.assert_array_equal(y, made["risk_coverage"].risk)


def test_each_cell_has_the_color_and_the_number_of_its_error(made, ax):
    plot(made["robustness"], ax)
    cells = {p.get_xy(): (p.get_width(), p.get_facecolor()) for p in bars(ax)}
    expected = {(0, 2): (2, 0.1), (0, 1): (1, 0.2), (1, 1): (1, 0.7), (0, 0): (1, 0.15),
                (1, 0): (1, 0.4)}  # fmt: skip
    assert cells == {k: (w, SIMILARITY(1 - (1 - e))) for k, (w, e) in expected.items()}
    texts = {t.get_position(): t.get_text() for t in ax.texts}
    assert texts[1, 2.5] == "10"
    assert texts[1.5, 1.5] == "70"
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["JPEG compression", "Fog", "Clean"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (0, "0"),
        (4, "<1"),
        (5, "1"),
        (125, "13"),
        (625, "63"),
        (994, "99"),
        (995, ">99"),
        (1000, "100"),
    ],
)
def test_none_and_all_are_said_of_none_and_all_alone(wrong, said):
    # Of 1,000 images; 12.5% and 62.5% are rounded up, both.
    assert percent(wrong / 1000) == said
    assert percent(1 - (1 - wrong / 1000)) == said


def test_severities_stand_in_their_order_also_without_clean_images(made, ax):
    result = made["robustness"]
    plot(result.select((result.corruption == "fog") & (result.severity == 5)), ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["5"]


def test_errors_stand_beside_those_of_the_reference(made, ax):
    plot(made["corruption_errors"], ax)
    assert [b.get_width() for b in bars(ax)] == [0.45, 0.275]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0.82, np.nan])
    assert ax.lines[1].get_xdata() == [0.1, 0.1]


def test_without_a_reference_and_clean_images_there_are_only_bars(made, ax):
    plain = replace(
        made["corruption_errors"], reference=np.full(2, np.nan), clean_error=float("nan")
    )
    plot(plain, ax)
    assert not ax.lines


def test_flip_rates_have_their_intervals_and_models_one_axis(made):
    one = made["stability"]
    rate = one.flip_rate
    larger = Estimated(*(3 * np.array([rate, rate.low, rate.high])))
    figure = panel({"a": one, "b": replace(one, flip_rate=larger)})
    first, second = figure.axes[:2]
    assert [b.get_height() for b in bars(first)] == [0.05, 0.02]
    (lines,) = first.collections
    assert [s.tolist() for s in lines.get_segments()] == [
        [[0, 0.04], [0, 0.06]],
        [[1, 0.01], [1, 0.03]],
    ]
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] == 0
