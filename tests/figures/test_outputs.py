"""The figures of outputs show their numbers in their places."""

import pytest
import torch
from internals import SIMILARITY, percent
from matplotlib.patches import Rectangle

import visprism as vp
from visprism import plot


def bars(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


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


def test_the_reliability_diagram_is_a_result_of_the_study(predictions):
    results = (vp.calibration(predictions), vp.reliability(predictions))
    entry = vp.Entry(models=("net",), analysis="calibration", results=results)
    study = vp.Study(("net",), (entry,))
    assert study["net"]["calibration"] is results[0]
    assert study["net"]["reliability"] is study["reliability"]["net"] is results[1]
    assert plot(study["net"]["reliability"]).get_ylabel() == "Accuracy"
    for drawn in (study["calibration"], study["net"]["calibration"]):
        with pytest.raises(vp.InputError, match=r'CalibrationMetrics\. Draw study\["reliabil'):
            plot(drawn)


@pytest.fixture
def predictions():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(60, 4, generator=generator)
    return vp.Predictions(logits, logits.argmax(1).roll(1))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(0, "0"), (4, "<1"), (125, "13"), (625, "63"), (995, ">99"), (1000, "100")],
)
def test_none_and_all_are_said_of_none_and_all_alone(wrong, said):
    # Of 1,000 images; 12.5% and 62.5% are rounded up, both.
    assert percent(wrong / 1000) == said
    assert percent(1 - (1 - wrong / 1000)) == said
