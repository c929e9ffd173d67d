"""Bad input: one sentence, exit code 2, and nothing is written."""

import os
import pickle
from argparse import Namespace

import pytest
import torch
from PIL import Image

from visprism.cli import main

TINY = ["--data", "shapes", "--limit", "4", "--batch-size", "4"]

MODULES = """
import torch
from torch import nn

class Broken(nn.Module):
    def forward(self, x):
        return x / 0 * 0

def broken():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), Broken(), nn.Conv2d(4, 4, 3), nn.Flatten()
    )

def training():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    model.eval = lambda: model.train()
    return model

class TwoImages(nn.Module):
    def forward(self, x, y):
        return x + y

def two():
    return TwoImages()
"""

pytestmark = pytest.mark.usefixtures("plugin")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def modules(tmp_path):
    path = tmp_path / "modules.py"
    path.write_text(MODULES)
    return path


def refused(capsys, *arguments):
    """The sentence that a command ends with; exit code 2 and no traceback."""
    assert main([str(a) for a in arguments]) == 2
    printed = capsys.readouterr()
    *_, last = printed.err.strip().splitlines()
    assert last.startswith("visprism: ")
    assert "Traceback" not in printed.err
    assert not printed.out
    return last.removeprefix("visprism: ")


# Commands and arguments.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["examin"], "unknown command 'examin'. Did you mean examine?"),
        (["sparcity"], "unknown command 'sparcity'. Did you mean sparsity?"),
        (["models", "--costs"], "unknown argument '--costs'. Did you mean --cost?"),
        (["models", "--trained", "--cost"], "not allowed with argument"),
        (["examine", "resnet20"], "the following arguments are required: --data, --out"),
        (["anatomy"], "the following arguments are required: MODEL"),
    ],
)
def test_an_unknown_command_or_argument_has_a_suggestion(arguments, sentence, capsys):
    assert sentence in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--limit", "0"], "--limit must be a positive integer, got '0'"),
        (["--batch-size", "many"], "--batch-size must be a positive integer, got 'many'"),
        (["--out", ""], "--out must be the name of a folder, got an empty text"),
        (["--size", "x32"], "--size must be N or HxW in pixels, such as 224 or 224x160"),
        (["--minutes", "0"], "number of minutes, or none for no limit, got '0'"),
        (["--minutes", "nan"], "number of minutes, or none for no limit, got 'nan'"),
        (["--seed", "-1"], "--seed"),
        (["--formats", "png,gif"], "--formats must be of png, svg, pdf, got 'png,gif'"),
        (["--precision", "fp8"], "--precision must be one of"),
        (["--device", "warp"], "--device must be available on this machine, got 'warp'"),
        (
            ["--threshold", "2"],
            "--threshold must be a number from 0 to 1, got 2",
        ),
        (["--threshold", "few"], "--threshold must be a number from 0 to 1"),
        (["--lim", "4"], "unknown argument '--lim'. Did you mean --limit, --split?"),
    ],
)
def test_a_value_is_refused_with_what_it_must_be(options, sentence, out, capsys):
    command = ["sparsity", "resnet20", *TINY, "--out", out, *options]
    assert sentence in refused(capsys, *command)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--analyses", "sparcity"], "unknown analysis 'sparcity'. Did you mean sparsity?"),
        (["--analyses", ","], "--analyses must be names separated by commas, got ','"),
        (["--set", "sparsity"], "--set must be ANALYSIS.OPTION=VALUE, got 'sparsity'"),
        (["--set", "sparcity.x=1"], "unknown analysis 'sparcity'. Did you mean sparsity?"),
        (["--set", "sparsity.treshold=1"], "has no option 'treshold'. Did you mean threshold?"),
        (["--set", "sparsity.threshold=2"], "threshold must be a number from 0 to 1"),
    ],
)
def test_an_unknown_analysis_or_option_has_a_suggestion(options, sentence, out, capsys):
    assert sentence in refused(capsys, "examine", "resnet20", *TINY, "--out", out, *options)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--severities", "1,9"], "--severities must be integers from 1 to 5, got 9"),
        (["--corruptions", "fog,foo"], "elastic_transform, pixelate"),
        (["--corruptions", "fog,foo"], ", saturate, got 'foo'"),
        (
            ["--minutes", "inf"],
            "--minutes must be a positive number of minutes, or none for no limit, got 'inf'",
        ),
    ],
)
def test_the_value_of_several_that_is_refused_is_named(options, sentence, out, capsys):
    assert sentence in refused(capsys, "corruptions", "resnet20", *TINY, "--out", out, *options)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("receptive-field", ["--precision", "bf16"], "'fp32' for receptive-field, got 'bf16'"),
        ("hessian", ["--precision", "fp16"], "--precision must be 'fp32' for hessian, got"),
        ("corruptions", ["--size", "8"], "--size must be at least 16 pixels for corruptions"),
    ],
)
def test_settings_that_no_model_can_have_are_refused_before_loading(
    name, options, sentence, out, capsys
):
    assert sentence in refused(capsys, name, "no.such.model", *TINY, "--out", out, *options)
    assert not out.exists()


def test_a_study_records_settings_that_an_analysis_cannot_have(out, capsys):
    command = ["examine", "resnet20", *TINY, "--analyses", "hessian,sparsity", "--out", out]
    assert main([*map(str, command), "--precision", "bf16"]) == 0
    assert "skipped: hessian" in capsys.readouterr().err
    assert (out / "report.html").exists()


# Models.


@pytest.mark.parametrize("command", ["examine", "sparsity"])
def test_an_unknown_model_has_a_suggestion(command, out, capsys):
    sentence = refused(capsys, command, "timm:resnet-18", *TINY, "--out", out)
    assert "timm:resnet-18" in sentence
    assert "timm:resnet18" in sentence
    assert not out.exists()


def test_a_model_of_fixed_size_fails_with_its_name_and_the_size(out, capsys):
    name = "timm:vit_tiny_patch16_224"
    sentence = refused(capsys, "sparsity", name, "--size", 64, *TINY, "--out", out)
    assert "images of 3x64x64" in sentence
    assert not out.exists()


def test_a_model_with_two_inputs_is_refused(modules, out, capsys):
    sentence = refused(capsys, "sparsity", f"{modules}:two", *TINY, "--out", out)
    assert "cannot process" in sentence
    assert not out.exists()


def test_a_model_in_training_mode_is_refused(modules, out, capsys):
    sentence = refused(capsys, "sparsity", f"{modules}:training", *TINY, "--out", out)
    assert "model must be in evaluation mode" in sentence
    assert not out.exists()


def test_feature_maps_that_are_not_numbers_name_their_block(modules, out, capsys):
    assert main(["variance", f"{modules}:broken", *TINY, "--out", str(out)]) == 1
    assert "block '1'" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_match_names_the_keys(tmp_path, out, capsys):
    torch.save({"fc.weight": torch.zeros(3)}, tmp_path / "a.pt")
    sentence = refused(capsys, "sparsity", f"resnet20@{tmp_path}/a.pt", *TINY, "--out", out)
    assert "a.pt" in sentence
    assert "fc.weight" in sentence


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, out, capsys):
    attack = pickle.dumps({"state_dict": Attack(str(tmp_path / "ran"))}, protocol=2)
    (tmp_path / "a.pt").write_bytes(attack)
    sentence = refused(capsys, "sparsity", f"resnet20@{tmp_path}/a.pt", *TINY, "--out", out)
    assert "a.pt" in sentence
    assert not (tmp_path / "ran").exists()


def test_two_models_of_one_name_are_refused(out, capsys):
    sentence = refused(capsys, "sparsity", "resnet20", "resnet20", *TINY, "--out", out)
    assert "models must have different names, got 'resnet20" in sentence


# Data.


@pytest.fixture
def photos(tmp_path):
    """Two classes of images, one of which cannot be read."""
    for name in ("cat/a.png", "cat/b.png", "dog/c.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 32), (90, 120, len(name) * 9)).save(path)
    (tmp_path / "photos" / "dog" / "bad.png").write_bytes(b"not an image")
    return f"folder:{tmp_path}/photos"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ("shape", "shapes"),
        ("folder:/no/such/folder", "/no/such/folder"),
        ("folder:{empty}", "{empty}"),
        ("parquet:/no/such/file.parquet", "/no/such/file.parquet"),
        ("nonsense:x", "nonsense"),
        ("shapes?size=huge", "size"),
    ],
    ids=["unknown", "missing folder", "empty folder", "missing file", "prefix", "option"],
)
def test_data_that_cannot_be_read_are_named(data, word, tmp_path, out, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    data, word = data.format(empty=empty), word.format(empty=empty)
    assert word in refused(capsys, "sparsity", "resnet20", "--data", data, "--out", out)
    assert not out.exists()


def test_an_image_that_cannot_be_read_is_named(photos, out, capsys):
    sentence = refused(capsys, "sparsity", "resnet20", "--data", photos, "--out", out)
    assert "bad.png" in sentence
    assert "--skip-bad" in sentence


def test_an_image_that_cannot_be_read_is_left_out_on_request(photos, out):
    command = ["sparsity", "resnet20", "--data", photos, "--skip-bad", "--out", str(out)]
    assert main(command) == 0


# Output.


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    sentence = refused(
        capsys, "sparsity", "resnet20", *TINY, "--out", tmp_path / "file" / "out"
    )
    assert sentence.startswith("--out must be a folder that can be written to, got ")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_of_another_study_is_refused(studied, capsys):
    before = (studied / "study.json").read_bytes()
    sentence = refused(
        capsys,
        "sparsity",
        "resnet20.shapes",
        "--data",
        "shapes",
        "--limit",
        3,
        "--out",
        studied,
    )
    assert sentence.startswith(
        "--out must be an empty folder or hold a study with the same images"
    )
    assert sentence.endswith("Choose another folder, or pass --fresh to start over.")
    assert (studied / "study.json").read_bytes() == before


def test_no_model_matches_a_pattern(capsys):
    sentence = refused(capsys, "models", "qqqqq")
    assert "pattern must match a model of the zoo, timm or torchvision" in sentence


@pytest.mark.parametrize(
    "command",
    [
        ["anatomy", "MODEL"],
        ["harmonize", "MODEL", "--out", "OUT"],
        ["train", "quick", "--model", "MODEL", *TINY[:4], "--epochs", "1", "--out", "OUT"],
    ],
    ids=lambda words: words[0],
)
def test_a_model_whose_forward_fails_is_refused_by_every_command(modules, out, capsys, command):
    names = {"MODEL": f"{modules}:two", "OUT": str(out)}
    sentence = refused(capsys, *(names.get(word, word) for word in command))
    assert "cannot process float32 images" in sentence
    assert "missing 1 required positional argument: 'y'" in sentence


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 16 GiB"),
        MemoryError(),
        RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
    ],
    ids=["NumPy", "Python", "torch", "CUDA"],
)
def test_too_little_memory_is_one_sentence(monkeypatch, capsys, error):
    def fail(_arguments):
        raise error

    monkeypatch.setattr("visprism.cli.parse", lambda _: Namespace(flags=(), run=fail))
    assert main(["variance"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("visprism: there is not enough memory (")


def test_another_failure_of_torch_is_not_taken_for_it(monkeypatch):
    def fail(_arguments):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr("visprism.cli.parse", lambda _: Namespace(flags=(), run=fail))
    with pytest.raises(RuntimeError, match="mat1"):
        main(["variance"])
