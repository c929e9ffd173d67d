"""What a user can get wrong: one sentence, exit code 2, and nothing is left behind."""

import os
import pickle

import pytest
import torch
from PIL import Image

from visprism.cli import main

TINY = ["--data", "shapes", "--limit", "4", "--batch-size", "4"]

NAN = """
import torch
from torch import nn

class Broken(nn.Module):
    def forward(self, x):
        return x / 0 * 0

def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), Broken(), nn.Conv2d(4, 4, 3), nn.Flatten()
    )

def training():
    model = network()
    model.eval = lambda: model.train()
    return model
"""


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def refused(capsys, *arguments):
    """The sentence that a command ends with; exit code 2 and no traceback."""
    assert main([str(a) for a in arguments]) == 2
    printed = capsys.readouterr().err
    *_, last = printed.strip().splitlines()
    assert last.startswith("visprism: ")
    assert "Traceback" not in printed
    return last


# Models.


COMMANDS = ["examine", "fourier", "variance", "cka", "receptive-field"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_model_is_told_what_was_meant(command, out, capsys):
    said = refused(capsys, command, "timm:resnet-18", *TINY, "--out", out)
    assert "unknown model 'timm:resnet-18'; did you mean timm:resnet18" in said
    assert not out.exists()


def test_a_fixed_size_model_says_its_size(out, capsys):
    said = refused(
        capsys, "examine", "timm:vit_tiny_patch16_224", "--size", 64, *TINY, "--out", out
    )
    assert "fails on images of 64x64" in said
    assert "its own are 224x224: leave --size out" in said
    assert not out.exists()


def test_feature_maps_that_are_not_numbers_name_their_block(tmp_path, out, capsys):
    (tmp_path / "broken.py").write_text(NAN)
    said = refused(capsys, "examine", f"{tmp_path}/broken.py:network", *TINY, "--out", out)
    assert "block '1' gives NaN" in said
    assert not out.exists()


def test_a_model_in_training_mode(tmp_path, out, capsys):
    (tmp_path / "stubborn.py").write_text(NAN)
    said = refused(capsys, "examine", f"{tmp_path}/stubborn.py:training", *TINY, "--out", out)
    assert "the model is in training mode; call model.eval() first" in said


def test_a_checkpoint_that_does_not_fit_names_the_keys(tmp_path, out, capsys):
    torch.save({"fc.weight": torch.zeros(3)}, tmp_path / "a.pt")
    said = refused(capsys, "examine", f"resnet20@{tmp_path}/a.pt", *TINY, "--out", out)
    assert "a.pt does not fit" in said
    assert "missing from the file (" in said


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, out, capsys):
    attack = pickle.dumps({"state_dict": Attack(str(tmp_path / "ran"))}, protocol=2)
    (tmp_path / "a.pt").write_bytes(attack)
    said = refused(capsys, "examine", f"resnet20@{tmp_path}/a.pt", *TINY, "--out", out)
    assert "was refused: it would run code when loaded" in said
    assert not (tmp_path / "ran").exists()


def test_one_model_twice_is_one_too_many(out, capsys):
    said = refused(capsys, "variance", "resnet20", "resnet20", *TINY, "--out", out)
    assert "give each a name of its own" in said


# Data.


@pytest.fixture
def photographs(tmp_path):
    """Two classes of two images, one of which cannot be read."""
    for name in ("cat/a.png", "cat/b.png", "dog/c.png"):
        path = tmp_path / "photographs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 32), (90, 120, len(name) * 9)).save(path)
    (tmp_path / "photographs" / "dog" / "bad.png").write_bytes(b"this is no image")
    return f"folder:{tmp_path}/photographs"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("shape", "did you mean shapes?"),
        ("folder:/no/such/folder", "/no/such/folder"),
        ("folder:{empty}", "{empty}"),
        ("parquet:/no/such/file.parquet", "/no/such/file.parquet"),
        ("nonsense:x", "nonsense"),
    ],
    ids=["unknown", "missing folder", "empty folder", "missing file", "prefix"],
)
def test_data_that_is_not_there(data, sentence, tmp_path, out, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    data, sentence = data.format(empty=empty), sentence.format(empty=empty)
    assert sentence in refused(capsys, "examine", "resnet20", "--data", data, "--out", out)
    assert not out.exists()


def test_an_image_that_cannot_be_read_is_named(photographs, out, capsys):
    said = refused(capsys, "examine", "resnet20", "--data", photographs, "--out", out)
    assert "bad.png" in said
    assert "--skip-bad" in said


@pytest.mark.usefixtures("without_figures")
def test_an_image_that_cannot_be_read_is_left_out_when_asked(photographs, out, capsys):
    command = ["variance", "resnet20", "--data", photographs, "--skip-bad", "--out", str(out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Left out, because they cannot be read: 1 (" in said
    assert "bad.png" in said


@pytest.mark.parametrize("options", [["--batch-size", "3"], ["--limit", "3"]])
def test_too_few_images_for_cka(options, out, capsys):
    said = refused(capsys, "cka", "resnet20", *TINY, *options, "--out", out)
    assert "CKA compares images within a batch and needs at least 4 in one, got 3" in said
    assert "use --batch-size 4 or more" in said
    assert not out.exists()


# Output.


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path, capsys, monkeypatch
):
    def never(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("visprism.examine.materials.load_model", never)
    (tmp_path / "file").write_text("not a folder")
    said = refused(capsys, "examine", "resnet20", *TINY, "--out", tmp_path / "file" / "out")
    assert "cannot write to the folder" in said
    assert "name another by --out" in said
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_folder_without_permission(tmp_path, capsys):
    tmp_path.chmod(0o500)
    said = refused(capsys, "examine", "resnet20", *TINY, "--out", tmp_path / "out")
    assert "Permission denied" in said


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("moment", ["examining.observe", "write_figures", "write_report"])
def test_ctrl_c_leaves_everything_as_it_was(moment, out, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"visprism.examine.{moment}", interrupt)
    out.mkdir()
    (out / "report.html").write_text("of an earlier run")
    assert main(["examine", "resnet20", *TINY, "--out", str(out)]) == 130
    assert capsys.readouterr().err.endswith("visprism: interrupted; nothing was written\n")
    assert [p.name for p in out.rglob("*")] == ["report.html"]
    assert (out / "report.html").read_text() == "of an earlier run"


def test_a_full_disk_is_no_traceback(out, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("visprism.examine.write_figures", full)
    said = refused(capsys, "examine", "resnet20", *TINY, "--out", out)
    assert said == "visprism: [Errno 28] No space left on device: 'somewhere'"
    assert not out.exists()


# Options.


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--limit", "0"], "'0' is not a whole number from 1 on"),
        (["--out", ""], "an empty name; name a folder"),
        (["--batch-size", "many"], "'many' is not a whole number from 1 on"),
        (["--size", "x32"], "'' is not a whole number from 1 on"),
        (["--protocol", "papers"], "invalid choice: 'papers'"),
    ],
)
def test_an_option_that_makes_no_sense(options, sentence, out, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["examine", "resnet20", *TINY, *options, "--out", str(out)])
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "query", "sentence"),
    [
        ("resnet20", "mean", "has no attention with a softmax over positions of the image"),
        ("vit_pico_patch4_32", "class", "has no class token; ask for 'mean' or for a pixel"),
        ("vit_pico_patch4_32", "99,3", "99,3 lies outside of the image of 32x32 pixels"),
    ],
)
def test_attention_that_is_not_there(model, query, sentence, out, capsys):
    arguments = ["attention", model, *TINY, "--query", query, "--out", out]
    assert sentence in refused(capsys, *arguments)
    assert not out.exists()


def test_a_query_that_makes_no_sense(out, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["attention", "resnet20", *TINY, "--query", "left", "--out", str(out)])
    assert "'left' is no query; wants a pixel, as 112,80, or class" in capsys.readouterr().err


def test_a_device_that_is_not_there(out, capsys):
    said = refused(capsys, "examine", "resnet20", *TINY, "--device", "warp", "--out", out)
    assert "device 'warp' cannot be used here" in said


def test_no_model_fits_a_pattern(capsys):
    assert "no model of the zoo" in refused(capsys, "models", "qqqqq")
