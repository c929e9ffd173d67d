"""Laws of the demonstration (src/visprism/demo.py), on recipes of a few steps."""

import numpy as np
import pytest

from visprism.cli import main
from visprism.demo import NETWORKS
from visprism.results.base import Result
from visprism.training import Recipe


@pytest.fixture
def short(monkeypatch):
    """A demonstration that takes seconds and learns next to nothing."""
    recipe = Recipe(images=64, epochs=2, batch_size=32, lr=1e-3)
    monkeypatch.setattr("visprism.demo.RECIPES", {r: lambda: recipe for r in NETWORKS.values()})
    monkeypatch.setattr("visprism.demo.TEST_IMAGES", 20)
    monkeypatch.setattr("visprism.demo.EXAMINED_IMAGES", 8)
    monkeypatch.setattr("visprism.demo.MINUTES", 0.0)


@pytest.mark.usefixtures("short", "without_figures")
def test_what_is_examined_is_what_was_trained_and_saved(tmp_path, capsys):
    assert main(["demo", "--out", f"{tmp_path}/demo"]) == 0
    said = capsys.readouterr()
    assert "64 images in" in said.out
    assert f"look at {tmp_path}/demo/report.html" in said.out
    for name in NETWORKS:
        assert f"training {name}: 4 done in" in said.err
        saved = f"{name}@{tmp_path}/demo/checkpoints/{name}.safetensors"
        again = ["variance", saved, "--data", "shapes", "--limit", "8"]
        assert main([*again, "--out", f"{tmp_path}/again"]) == 0
        first = Result.load(tmp_path / "demo" / "results" / f"{name}-trained-variance.npz")
        second = Result.load(tmp_path / "again" / "results" / f"{name}-variance.npz")
        np.testing.assert_array_equal(first.variance, second.variance)
        assert first.provenance.model == f"{name} (trained on shapes)"


@pytest.mark.usefixtures("short")
def test_ctrl_c_while_training_leaves_no_checkpoint(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("visprism.demo.fit", interrupt)
    assert main(["demo", "--out", f"{tmp_path}/demo"]) == 130
    assert not list(tmp_path.iterdir())
