"""Laws of the demonstration, with few images and recipes of a few steps."""

import pytest
from internals import SHIPPED

from visprism import ANALYSES, Recipe, Study
from visprism.cli import main
from visprism.demo import NETWORKS


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A demonstration that learns next to nothing, with the cheapest analyses.

    All of them would need a time budget that depends on the speed of the machine.
    """
    recipe = Recipe(limit=64, epochs=2, batch_size=32, lr=1e-3)
    monkeypatch.setattr("visprism.demo.RECIPES", {r: lambda: recipe for r in NETWORKS.values()})
    monkeypatch.setattr("visprism.demo.TEST_IMAGES", 20)
    monkeypatch.setattr("visprism.cli.studies._DEMO_IMAGES", 8)
    analyses = {name: ANALYSES[name] for name in ("anatomy", "variance")}
    monkeypatch.setattr(ANALYSES, "_functions", analyses)


def test_the_shipped_networks_are_examined(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert f"Page: {tmp_path / 'report.html'} " in capsys.readouterr().out
    study = Study.load(tmp_path)
    assert study.models == tuple(SHIPPED)
    assert study["ResNet-20"]["variance"].provenance.images == 8


@pytest.mark.slow
def test_trained_networks_are_saved_and_examined(tmp_path, capsys):
    assert main(["demo", "--train", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().err.splitlines()
    (header,) = [i for i, line in enumerate(lines) if line.startswith("network ")]
    rows = lines[header + 1 : header + 3]
    for name, row in zip(NETWORKS, rows, strict=True):
        assert row.startswith(f"{name} (trained)")
        assert " 64 " in row
        assert (tmp_path / "checkpoints" / f"{name}.safetensors").exists()
        assert f"{name} (trained)" in Study.load(tmp_path).models
