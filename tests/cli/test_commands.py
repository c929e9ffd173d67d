"""Each command once, as a user runs it, with its defaults; and its JSON, alone on stdout."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visprism
from visprism import ANALYSES, Study
from visprism.cli import main

PACKAGE = Path(visprism.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "command_line.md"
FIRST = "resnet20.shapes"


@pytest.mark.slow
def test_examine_with_its_defaults(tmp_path):
    words = ["examine", FIRST, "--data", "shapes", "--limit", "8", "--out", str(tmp_path)]
    assert main(words) == 0
    assert (tmp_path / "report.html").exists()
    assert not [f for f in Study.load(tmp_path).failures if f.kind == "failed"]


NEEDED = {
    "trajectory": ["--checkpoints", "{0},{1},{2}"],
    "mode-connectivity": ["--checkpoints", "{0},{1}"],
    "out-of-distribution": ["--ood-data", "shapes?cues=conflict"],
    "distribution-shift": None,  # needs stored sets of images
    "position-embeddings": None,  # a ResNet has none
    "anatomy": None,  # has no data
    "training-curvature": None,  # a training measures it
    "relative-scores": None,
    "attention": None,
    "attention-maps": None,
    "sparsity": None,  # the plug-in, of the other tests
}

# Images, where four are too few.
FEWEST = {
    "class-separability": 20,
    "feature-similarity": 24,
    "intrinsic-dimension": 24,
    "readout": 24,
    "out-of-distribution": 60,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ANALYSES if NEEDED.get(n, []) is not None])
def test_the_command_of_each_analysis_with_its_defaults(name, tmp_path):
    data = "shapes?cues=conflict" if name == "shape-bias" else "shapes"
    files = []
    for seed in range(3) if name in NEEDED else ():
        files.append(tmp_path / f"{seed}.safetensors")
        network = visprism.load_model("resnet20", seed=seed)
        visprism.save_checkpoint(network.model, files[-1], preprocessing=network.preprocessing)
    more = [word.format(*files) for word in NEEDED.get(name, [])]
    limit = str(FEWEST.get(name, 4))
    words = [name, FIRST, "--data", data, "--limit", limit, *more, "--minutes", "5"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["models", "--trained", "resnet20.shapes"], "name", "resnet20.shapes"),
        (["data"], "data", "shapes"),
        (["recipes"], "recipe", "quick"),
    ],
)
def test_a_list_has_a_row_for_each_entry_and_its_json_an_object(capsys, words, key, value):
    assert main(words) == 0
    assert value in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert value in [row[key] for row in json.loads(capsys.readouterr().out)]


def test_json_of_anatomy_sums_to_its_totals(capsys):
    assert main(["anatomy", "resnet20", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert sum(block["macs"] for block in content["blocks"]) == content["macs"]
    assert content["parameters"] == 272474


def test_doctor_states_versions_devices_and_folders(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("VISPRISM_HOME", str(tmp_path))
    assert main(["doctor"]) == 0
    assert "weights of torchvision" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["system"]["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert content["packages"]["torch"][0].isdecimal()
    assert content["folders"]["data sets"] == f"{tmp_path / 'data'} (does not exist)"


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    """The script that ``visprism completion bash`` prints; other shells get one too."""
    path = tmp_path_factory.mktemp("completion") / "bash"
    for shell in ("zsh", "fish", "bash"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main(["completion", shell]) == 0
        assert "fourier" in printed.getvalue()
    path.write_text(printed.getvalue())
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fourie"], "fourier"),
        (["fourier", "--profile", "rad"], "radial"),
        (["anatomy", "vit_pico_patch4_32.sh"], "vit_pico_patch4_32.shapes"),
        (["train", "qui"], "quick"),
    ],
)
def test_bash_completes(bash_script, words, expected):
    line = f"COMP_WORDS=(visprism {' '.join(words)}); COMP_CWORD={len(words)}"
    call = f"_shtab_visprism visprism '{words[-1]}' '{words[-2:][0]}'"
    code = f'. {bash_script}; {line}; {call}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert expected in done.stdout.split()


def test_the_table_of_environment_variables_is_that_of_the_code():
    sources = "\n".join(p.read_text("utf-8") for p in PACKAGE.rglob("*.py"))
    reads = re.findall(r"environ(?:\.get|\.setdefault)?[\[(]\"(\w+)\"", sources)
    groups = re.findall(r"names = \((\"[A-Z_]+\"[^)]*)\)", sources)
    read = {*reads, *(name for group in groups for name in re.findall(r"\"([A-Z_]+)\"", group))}
    table = PAGE.read_text("utf-8").partition("## Environment")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert read <= listed
    assert listed - read <= {"NO_COLOR", "COLUMNS"}  # rich and argparse read these


@pytest.mark.slow
def test_training_in_two_processes_says_once_how_it_went(tmp_path):
    for number in range(16):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
    data = f"folder:{tmp_path / 'images'}"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("-m", "visprism", "train", "quick", "--model", "resnet20?num_classes=2"),
            *("--data", data, "--test-data", data, "--epochs", "2"),
            *("--set", "batch_size=8", "--out", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"Wrote {tmp_path / 'run'}\n") == 1
    assert ran.stderr.count("epoch 2 of 2") == 1
