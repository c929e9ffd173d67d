"""Laws of ``visprism harmonize``."""

import re
import shlex

import torch

from visprism import Result, harmonize_model, load_model
from visprism.cli import main
from visprism.results import ReplacementSearch

SHALLOW = """
from visprism import load_model

def shallow():
    model = load_model("resnet20").model
    model.img_size = 32
    for stage in (model.layer1, model.layer2, model.layer3):
        del stage[1:]
    return model
"""


@torch.no_grad()
def test_what_it_writes_is_a_model_for_every_command(tmp_path, capsys):
    options = ["--placement", "0,0,2", "--head-dim", "8"]
    assert main(["harmonize", "resnet20", *options, "--out", str(tmp_path)]) == 0
    (written,) = map(str, tmp_path.iterdir())
    assert written.endswith("alternet.safetensors")
    loaded, images = load_model(written), torch.randn(2, 3, 32, 32)
    base = load_model("resnet20")
    same = harmonize_model(base.model, images, ["layer3.0", "layer3.2"], head_dim=8)
    torch.testing.assert_close(loaded.model(images), same(images), rtol=0, atol=0)
    assert loaded.preprocessing == base.preprocessing
    assert main(["anatomy", written]) == 0
    output = capsys.readouterr().out
    assert "layer3.2" in output
    assert "attention" in output


def test_a_search_writes_its_log_figure_and_network_and_goes_on(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(SHALLOW)
    out = tmp_path / "out"
    command = ["harmonize", f"{tmp_path}/mine.py:shallow", "--search", "quick"]
    command += ["--data", "shapes", "--limit", "20", "--epochs", "1", "--repeats", "2"]
    command += ["--head-dim", "8", "--set", "batch_size=5", "--set", "warmup=0"]
    command += ["--set", "precision=fp32", "--out", str(out)]
    assert main(command) == 0
    names = {p.name for p in out.iterdir()}
    assert {"search.json", "search.npz", "search.png", "alternet.safetensors"} <= names
    search = Result.load(out / "search.npz")
    assert isinstance(search, ReplacementSearch)
    assert search.provenance.images == 20 - 10  # one of each class is held out
    first = capsys.readouterr()
    *_, name = shlex.split(first.out)
    assert load_model(name).trained
    assert f"load it as {shlex.quote(name)}\n" in first.out
    assert "training the CNN, seed 0" in first.err
    assert main(command) == 0  # everything is known
    again = capsys.readouterr()
    assert "training" not in again.err
    assert again.out == first.out
    for name, change in {
        "recipe": ["--set", "lr=1e-4"],
        "preprocessing": ["--size", "24"],
        "split": ["--split", "test"],
    }.items():
        assert main([*command, *change]) == 2
        assert re.search(f"another search .different .*{name}", capsys.readouterr().err)
