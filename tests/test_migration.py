"""Laws of docs/migration.md: its calls run, and its numbers are the measured ones."""

import json
import re
import runpy
from pathlib import Path

import pytest
import torch

import visprism as vp

PROJECT = Path(__file__).parents[1]
TEXT = (PROJECT / "docs" / "migration.md").read_text("utf-8")
CALLS = [
    call
    for line in TEXT.splitlines()
    if line.startswith("| `")
    for call in re.findall(r"`(vp\.[^`]*)`", line.split(" | ", 1)[1])
]
SLOW = (
    "Landscape",
    "landscape",
    "Hessian",
    "spectral_density",
    "top_eigenvalues",
    "vp.trace",
    "Corruptions",
    "Adversarial",
    "alter_resnet50_32",
)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page defines, with one block and few images, and the names in its tables."""
    path = tmp_path_factory.mktemp("migration") / "b.pt"
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    scope = {}
    exec(example, scope)
    model, x, y = scope["model"], scope["x"][:8], scope["y"][:8]
    other = vp.load_model("vit_pico_patch4_32", seed=1).model
    for network in (model, other):
        del network.blocks[1:]
    torch.save(other.state_dict(), path)
    return scope | {
        "x": x,
        "y": y,
        "batches": [(x, y)],
        "objective": vp.Objective(model, [(x, y)]),
        "a": model,
        "b": model,
        "pixels": torch.zeros(2, 3, 32, 32, dtype=torch.uint8),
        "path": path,
    }


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=pytest.mark.slow if any(w in call for w in SLOW) else ())
        for call in CALLS
        if "@PATH" not in call
    ],
)
def test_a_call_in_the_tables_runs(names, call):
    assert eval(call.replace("PATH", str(names["path"])), dict(names)) is not None


def test_the_tables_are_those_of_the_measurement(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT / "benchmarks")
    ways = json.loads((PROJECT / "benchmarks/results/migration.json").read_text())["ways"]
    script = runpy.run_path(str(PROJECT / "benchmarks" / "migration.py"))
    assert script["with_tables"](TEXT, ways) == TEXT
