"""A plug-in's analysis enters everywhere, with no change to visprism."""

import json

import pytest
import torch
from torch import nn

import visprism as vp
from visprism import Result, check_statistic
from visprism.cli import main
from visprism.cli.parser import command_parser, help_text


@pytest.fixture(autouse=True)
def installed(plugin):
    return plugin


def test_it_is_a_command_with_a_help_text_for_every_option():
    assert "  sparsity  " in help_text()
    assert "  Fraction of activations of each block that are near 0" in help_text()
    text = " ".join(command_parser("sparsity").format_help().split())
    assert "--threshold" in text
    assert "largest absolute value, as a fraction of the largest (default: 0.01)" in text


def test_it_is_an_analysis_of_examine_with_plan_report_and_json(tmp_path, capsys):
    words = "examine resnet20.shapes --data shapes --limit 8 --analyses sparsity,variance"
    assert main([*words.split(), "--verbose", "--out", str(tmp_path)]) == 0
    assert "sparsity" in capsys.readouterr().err.partition("Plan:")[2]
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Sparsity of feature maps" in page
    assert "Glorot et al. (2011)" in page
    content = json.loads((tmp_path / "results.json").read_text("utf-8"))
    (entry,) = [e for e in content["analyses"] if e["analysis"] == "sparsity"]
    assert entry["options"] == {"threshold": 0.01}
    assert "How sparse are feature maps?" in {q["question"] for q in content["questions"]}
    (path,) = tmp_path.glob("results/*-sparsity-sparsity-*.npz")
    assert Result.load(path).identifier == "sparsity"


def test_it_is_callable_from_python_on_any_module_and_batches():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    ).eval()
    analysis = vp.analyses.MeasureSparsity(threshold=0.0)
    batches = [torch.rand(3, 3, 8, 8), torch.rand(2, 3, 8, 8)]
    result = analysis(model, batches)
    maps = torch.cat([model[:2](images) for images in batches])
    assert result.sparsity[0] == pytest.approx(float((maps == 0).double().mean()))


def test_it_obeys_the_laws_of_statistics(tmp_path):
    import your_own_analysis

    check_statistic(your_own_analysis.MeasureSparsity(0.5), tmp_path)
