"""``visprism train`` and ``recipes``: what they write, and what they refuse."""

import re
import sys

import pytest
import torch
from PIL import Image

from visprism import Result, load_data, read_metadata
from visprism.cli import main
from visprism.models.state_dicts import read_state_dict
from visprism.training.checkpointer import Checkpointer

TINY = [
    "--data", "shapes", "--model", "resnet20", "--limit", "40", "--set", "batch_size=20",
    "--epochs", "2", "--set", "snapshot_every=1",
]  # fmt: skip

# As `calibration` computes.
EXACT = ["train", "quick", *TINY, "--set", "precision=fp32", "--out"]

pytestmark = pytest.mark.slow  # runs of training, as a user starts them


@pytest.fixture(autouse=True)
def few_test_images(monkeypatch):
    def fewer(spec, *, split=None, limit=None, **options):
        return load_data(spec, split=split, limit=limit or 20, **options)

    monkeypatch.setattr("visprism.training.job.load_data", fewer)


def refused(capsys, *arguments):
    assert main([str(a) for a in arguments]) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("visprism: ")
    return last


def test_train_leaves_weights_that_other_commands_take_alone(tmp_path, capsys):
    assert main([*EXACT, f"{tmp_path}/run"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("training loss ")
    assert " after 2 epochs" in said.out
    assert "epoch 2 of 2 · loss" in said.err
    run = tmp_path / "run"
    names = {p.name for p in run.iterdir()}
    assert names >= {
        "model.safetensors", "best.safetensors", "last.ckpt", "previous.ckpt", "history.csv",
        "history.npz", "recipe.yaml", "curves-loss.png", "curves-accuracy.pdf", "snapshots",
        "tensorboard",
    }  # fmt: skip
    snapshots = sorted(p.name for p in (run / "snapshots").iterdir())
    assert snapshots == [f"step-{n:08}.safetensors" for n in (0, 2, 4)]
    history = Result.load(run / "history.npz")
    assert history.step.tolist() == [2, 4]
    metadata = read_metadata(run / "model.safetensors")
    assert metadata.recipe["batch_size"] == 20
    assert len(metadata.class_names) == 10
    assert metadata.metrics["test_nll"] == history.test_nll[-1]
    assert (metadata.provenance.model, metadata.provenance.images) == ("resnet20", 40)

    options = ["--data", "shapes", "--limit", "20", "--out", f"{tmp_path}/found"]
    assert main(["calibration", f"{run}/model.safetensors", *options]) == 0
    (file,) = (tmp_path / "found" / "results").glob("*-calibration-calibration-*.npz")
    capsys.readouterr()
    metrics = Result.load(file)
    assert metrics.accuracy == history.test_accuracy[-1]
    assert metrics.nll == pytest.approx(history.test_nll[-1], rel=1e-5)

    # The same command again: refused without --resume, and with it nothing is left to do.
    assert "holds a run after 4 steps. Set --resume to" in refused(capsys, *EXACT, run)
    before = read_state_dict(run / "model.safetensors")
    table = (run / "history.csv").read_bytes()
    assert main([*EXACT, f"{run}", "--resume"]) == 0
    resumed = capsys.readouterr()
    assert "epoch" not in resumed.err
    assert resumed.out == said.out
    assert (run / "history.csv").read_bytes() == table
    assert Result.load(run / "history.npz") == history
    after = read_state_dict(run / "model.safetensors")
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    said = refused(capsys, *EXACT, run, "--set", "lr=1e-4", "--resume")
    assert "holds another run: recipe lr 0.002 there and 0.0001 now. Resume it with" in said


def test_an_interrupted_run_resumes_with_the_steps_that_are_left(tmp_path, capsys, monkeypatch):
    assert main([*EXACT, f"{tmp_path}/undisturbed"]) == 0
    after_epoch = Checkpointer.after_epoch

    def interrupted(self, step, accuracy):
        after_epoch(self, step, accuracy)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpointer, "after_epoch", interrupted)
        assert main([*EXACT, f"{tmp_path}/run"]) == 130
    message = f"saved {tmp_path}/run/last.ckpt; the same command with --resume resumes"
    assert capsys.readouterr().err.endswith(f"interrupted; {message}\n")
    assert main([*EXACT, f"{tmp_path}/run", "--resume"]) == 0
    assert Result.load(tmp_path / "run" / "history.npz").step.tolist() == [2, 4]
    files = (tmp_path / run / "model.safetensors" for run in ("run", "undisturbed"))
    torch.testing.assert_close(*map(read_state_dict, files), rtol=0, atol=0)


def test_other_test_images_are_another_run_and_of_other_classes_refused(tmp_path, capsys):
    run = ["train", "quick", *TINY, "--out", tmp_path / "run"]
    assert main([str(a) for a in run]) == 0
    assert "95% interval" in capsys.readouterr().out
    assert "test data" in refused(capsys, *run, "--resume", "--test-split", "train")
    said = refused(capsys, *run, "--resume", "--test-limit", "10")
    assert re.search("20 images.*10 images", said)
    for name in "abc":
        (tmp_path / "own" / "test" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "own" / "test" / name / "0.png")
    said = refused(capsys, *run, "--test-data", f"folder:{tmp_path}/own")
    assert "test images must have the 10 classes of the training images, got 3" in said
    said = refused(capsys, *run, "--test-data", f"folder:{tmp_path}/own/test/a")
    assert "test images must have labels" in said


def test_a_log_whose_package_is_missing_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr(
        "visprism.core.loggers.find_spec", lambda name: None if name == "wandb" else name
    )
    said = refused(capsys, "train", "quick", *TINY, "--log", "wandb", "--out", tmp_path / "run")
    assert "the logger wandb needs the package wandb, which is not installed." in said
    assert "Install it with pip install wandb" in said


def test_without_validation_a_folder_without_splits_is_trained_on_whole(tmp_path, capsys):
    for number in range(12):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (20 * number, 0, 0)).save(folder / f"{number}.png")
    where = ["--data", f"folder:{tmp_path / 'images'}", "--out", str(tmp_path / "run")]
    how = ["--model", "resnet20?num_classes=2", "--epochs", "2", "--set", "batch_size=6"]
    assert main(["train", "quick", *how, *where, "--validation", "0"]) == 0
    assert "test accuracy" not in capsys.readouterr().out
    history = Result.load(tmp_path / "run" / "history.npz")
    assert history.step.tolist() == [2, 4]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "curves-loss.png" in names
    assert "curves-accuracy.png" not in names


def test_small_images_keep_their_size_for_a_model_that_states_none(tmp_path):
    (tmp_path / "model.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 30**2, 10))\n"
    )
    out, model = tmp_path / "run", f"{tmp_path}/model.py:build"
    assert main([*[model if w == "resnet20" else w for w in EXACT], str(out)]) == 0
    used = read_metadata(out / "model.safetensors").preprocessing
    assert used.size == (32, 32)
    assert used.mean != (0, 0, 0)  # that of the images


def test_first_commands_of_users_of_other_trainers_work_or_name_what_does(tmp_path, capsys):
    flags = [
        "--lr",
        "0.01",
        "--opt",
        "sgd",
        "--wd",
        "1e-4",
        "--batch-size",
        "20",
        "--epochs",
        "1",
    ]
    small = ["--data", "shapes", "--model", "resnet20", "--limit", "40", "--out"]
    assert main(["train", "quick", *small, str(tmp_path / "run"), *flags]) == 0
    recipe = read_metadata(tmp_path / "run" / "model.safetensors").recipe
    expected = {"lr": 0.01, "optimizer": "sgd", "weight_decay": 1e-4, "batch_size": 20}
    assert {name: recipe[name] for name in expected} == expected
    for flag, sentence in {
        "-b": "Did you mean --batch-size?",
        "--learning-rate": "Did you mean --lr?",
        "--max_epochs": "Did you mean --epochs?",
        "--mixup": "Did you mean --set mixup=VALUE?",
        "--model-ema-decay": "Did you mean --set ema=VALUE?",
        "--data-dir": "Did you mean --data?",
        "--num-classes": "The number of classes is the data's.",
    }.items():
        arguments = ["train", "quick", *small, tmp_path / "none", flag, "1"]
        assert refused(capsys, *arguments).endswith(sentence)
    few = ["train", "quick", "--data", "shapes", "--model", "resnet20", "--limit", "10"]
    sentence = refused(capsys, *few, "--out", tmp_path / "none")
    assert "limit must be at least batch_size (128), got 10" in sentence
