"""The notebooks in examples/ run, and what their last cells say is true of their numbers."""

import re
import runpy
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import visprism as vp

PROJECT = Path(__file__).parents[1]
CONTRAST = (
    "difference of accuracy drops, bands above 0.5 π rad/pixel minus bands below, equal energy"
)
NOTEBOOKS = sorted((PROJECT / "examples").glob("*.py"))
LESSONS = runpy.run_path(str(PROJECT / "docs" / "generators" / "notebooks.py"))["LESSONS"]
ANALYSES = {"fourier", "variance", "cka", "hessian", "landscape", "calibration"}

Names = dict[str, Any]


@pytest.mark.slow  # test_plugins.py has the other example
@pytest.mark.parametrize("lesson", [n for n in LESSONS if n != "your_own_analysis"])
def test_a_notebook_runs_and_its_words_are_true(lesson, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        names = runpy.run_path(str(PROJECT / "examples" / f"{lesson}.py"), run_name="__main__")
        assert plt.get_fignums() or lesson == "examine_your_model"  # which writes a page
        assert capsys.readouterr().out
        globals()[lesson](names)
    finally:
        plt.close("all")


def test_every_notebook_has_its_place_in_the_gallery():
    assert set(LESSONS) == {path.stem for path in NOTEBOOKS}


def of_kind(study: vp.Study, model: str, analysis: str, result: type) -> Any:
    return next(r for r in study[model].results(analysis) if isinstance(r, result))


def answers(result: vp.Result, words: str) -> list[vp.Answer]:
    return [
        answer for answer in result.answers() if words in f"{answer.question} {answer.quantity}"
    ]


def sentences(study: vp.Study, model: str, analysis: str) -> list[str]:
    return [str(f) for result in study[model].results(analysis) for f in result.findings()]


# What must be true of the numbers of a notebook, by its name.


def examine_your_model(names: Names) -> None:
    study, reloaded = names["study"], vp.Study.load(Path("study"))
    assert not [f for f in study.failures if f.kind == "failed"]
    for model in ("shallow", "deep"):
        assert set(study[model]) >= ANALYSES
        assert model in study._repr_html_()
        for analysis in ANALYSES:
            assert reloaded[model][analysis] == study[model][analysis]
            assert len(study[model][analysis].to_pandas()) == len(study[model][analysis])
    results = [r for e in study.between("shallow", "deep") for r in e.results]
    (similarity,) = (r for r in results if isinstance(r, vp.results.Similarity))
    assert len(set(similarity.block)) != len(set(similarity.other))
    assert "<CalibrationMetrics of deep: " in names["answer"].stdout  # of a new process
    assert Path("report.html").stat().st_size > 10_000


def dissect_your_model(names: Names) -> None:
    kinds = [block.kind for block in names["anatomy"]]
    assert kinds.count("conv") == kinds.count("mlp") == 6
    assert names["restored"]
    assert len(names["changes"]) == 12
    assert all(change > 0 for change in names["changes"].values())


def fourier_and_variance(names: Names) -> None:
    study = names["study"]
    kinds = {m: of_kind(study, m, "fourier", vp.results.KindSummary) for m in study}
    to_mean, to_lowest = answers(kinds["ResNet-20"], "conv")
    assert "relative to the mean" in to_mean.quantity
    assert to_mean.high < 0
    assert abs(to_lowest.high) < 0.01
    attention, mlp = (answers(kinds["ViT-Pico"], f"across {k}") for k in ("attention", "mlp"))
    for falls, undecided in ((attention[0], attention[1]), (mlp[1], mlp[0])):
        assert falls.high < 0
        assert undecided.low < 0 < undecided.high
    changes = {}
    for model, kind in (("ResNet-20", "conv"), ("ViT-Pico", "attention"), ("ViT-Pico", "mlp")):
        summary = of_kind(study, model, "variance", vp.results.KindSummary)
        absolute, relative = answers(summary, f"across {kind}")
        assert relative.value < 0 < absolute.value
        changes[kind] = absolute.value
    assert 3 * changes["attention"] < min(changes["conv"], changes["mlp"])


def curvature_and_landscape(names: Names) -> None:
    means = []
    for model in ("ResNet-20", "ViT-Pico"):
        spectrum = of_kind(names["study"], model, "hessian", vp.results.HessianSpectrum)
        leading = spectrum.value[spectrum.rank > 0]
        assert (leading > 0).all()
        assert spectrum.batches == 4
        means.append(leading.mean())
    assert means[0] > 4 * means[1]
    text = {
        name: [str(f) for f in circles.findings()]
        for name, circles in names["by_distance"].items()
    }

    def rise(model: str, treatment: str) -> float:
        (line,) = [t for t in text[model] if "normalized distance 1" in t and treatment in t]
        return float(re.search(r"rises by ([\d.]+)", line)[1])

    frozen, estimated = rise("ResNet-20", "frozen"), rise("ResNet-20", "re-estimated")
    assert frozen > 2 * rise("ViT-Pico", "")
    assert estimated < frozen / 2
    assert any("VP105" in line for line in text["ResNet-20"])


def ablation_and_cka(names: Names) -> None:
    def late_minus_early(model: str, kind: str) -> str:
        beginning = f"whole block replaced by the identity, {kind}, late minus early:"
        (line,) = [f for f in sentences(names["study"], model, "ablation") if beginning in f]
        return line

    for model, kind in (("ResNet-20", "conv"), ("ViT-Pico", "mlp")):
        assert "late minus early: -" in late_minus_early(model, kind)
        assert "not significant" not in late_minus_early(model, kind)
    assert "not significant" in late_minus_early("ViT-Pico", "attention")
    vit = sentences(names["study"], "ViT-Pico", "ablation")
    assert any("attention minus mlp" in f and "not significant" in f for f in vit)
    assert "(stem, stem" in str(names["similarity"].findings()[0])


def robustness_by_frequency(names: Names) -> None:
    study = names["study"]
    difference = {row.quantity: row.difference for row in study.table()}
    assert difference[CONTRAST].low > 0
    drops = []
    for model in study:
        lines = sentences(study, model, "frequency-noise")
        assert any("minus bands below, equal energy: -" in line for line in lines)
        text = str(study[model]["corruptions"].findings()[0])
        drops.append(float(re.search(r"clean images ([\d.]+) percentage", text)[1]))
    assert abs(drops[0] - drops[1]) < 5
    for model, worst in (("ResNet-20", "contrast"), ("ViT-Pico", "impulse noise")):
        lines = [str(f) for f in study[model]["corruptions"].findings()]
        assert any(line.startswith("lowest accuracy") and worst in line for line in lines)


def from_cnn_to_alternet(names: Names) -> None:
    accuracy = {name: r.accuracy for name, r in names["accuracies"].items()}
    assert accuracy["CNN"] == pytest.approx(0.86, abs=0.02)
    assert accuracy["AlterNet before training"] == pytest.approx(0.37, abs=0.05)
    assert accuracy["AlterNet after training"] == pytest.approx(0.73, abs=0.05)
    sizes = [sum(p.numel() for p in names[name].parameters()) for name in ("alternet", "cnn")]
    assert sizes[0] < sizes[1]
    variance = of_kind(names["study"], "AlterNet", "variance", vp.results.KindSummary)
    row = variance.of_kind("attention")["log-relative-variance"]
    assert variance.mean.high[row] < 0
    assert (variance.falls[row], variance.blocks[row]) == (2, 2)
    summary = of_kind(names["study"], "AlterNet", "fourier", vp.results.KindSummary)
    (convolutions, _), (to_mean, to_lowest) = (
        answers(summary, f"across {kind}") for kind in ("conv", "attention")
    )
    assert max(convolutions.high, to_mean.high) < 0
    assert to_lowest.low < 0 < to_lowest.high


def train_with_sam(names: Names) -> None:
    for values in (
        {name: series[-1] for name, series in names["sharpness"].items()},
        names["eigenvalues"],
    ):
        assert values["with SAM"] / values["without SAM"] < 0.5
    accuracy = {name: h.test_accuracy[-1] for name, h in names["histories"].items()}
    assert accuracy["with SAM"] < accuracy["without SAM"]


def attention_as_convolution(names: Names) -> None:
    for layer in (names["attention"], names["patches"]):
        assert len(layer.scores) == 9
        weights = vp.relative_scores(layer.scores).weight
        assert (np.sort(weights)[-9:] == 1).all()
        assert weights.sum() == 9
    trained = names["scores"]
    assert trained.weight.max() < 0.5


def tokens_and_windows(names: Names) -> None:
    accuracies = names["accuracies"]
    assert 0.5 < accuracies["distillation token"] < accuracies["class token"]
    assert 0.9 < names["similarity"] < 1
    assert [*names["windows"].values()] == 2 * [[(0, 3), (0, 3)], [(2, 5), (2, 5)]]
    accuracy = names["history"].test_accuracy[-1]
    assert 0.2 < accuracy < accuracies["class token"] - 0.1


def visprism_in_300_lines(names: Names) -> None:
    lines = (PROJECT / "examples" / "visprism_in_300_lines.py").read_text("utf-8").splitlines()
    assert len(lines) < 300
    highest, residual, ours = names["highest"], names["residual"], names["height"]
    rows = [highest.block.tolist().index(block.name) for block in residual]
    np.testing.assert_allclose(highest.relative[rows], ours.mean, rtol=1e-5)
    half_width = (highest.relative.high - highest.relative.low)[rows] / 2
    np.testing.assert_allclose(half_width, ours.half_width, rtol=1e-4)
