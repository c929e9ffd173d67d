"""``visprism train`` and ``recipes``: what they write, and what they refuse."""

import sys

import pytest
import torch
from PIL import Image

from visprism.cli import main
from visprism.models.metadata import read_metadata
from visprism.models.state_dicts import read_state_dict
from visprism.results.base import Result
from visprism.training.resuming import write_state

TINY = [
    "--data", "shapes", "--model", "resnet20", "--limit", "40", "--set", "batch_size=20",
    "--epochs", "2", "--set", "snapshots=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def few_test_images(monkeypatch):
    from visprism.data import load_data

    def fewer(spec, *, split=None, limit=None, **options):
        return load_data(spec, split=split, limit=limit or 20, **options)

    monkeypatch.setattr("visprism.training.job.load_data", fewer)


def refused(capsys, *arguments):
    assert main([str(a) for a in arguments]) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("visprism: ")
    return last


@pytest.mark.usefixtures("without_figures")  # of `evaluate`
def test_train_leaves_weights_that_other_commands_take_alone(tmp_path, capsys):
    exact = ["--set", "precision=fp32"]  # as `evaluate` computes
    assert main(["train", "quick", *TINY, *exact, "--out", f"{tmp_path}/run"]) == 0
    said = capsys.readouterr()
    assert "after 2 epochs the training loss is" in said.out
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
    known = read_metadata(run / "model.safetensors")
    assert known.recipe["batch_size"] == 20
    assert len(known.class_names) == 10
    assert known.metrics["test_nll"] == history.test_nll[-1]
    assert (known.provenance.model, known.provenance.images) == ("resnet20", 40)

    options = ["--data", "shapes", "--limit", "20", "--out", f"{tmp_path}/found"]
    assert main(["evaluate", f"{run}/model.safetensors", *options]) == 0
    (file,) = (tmp_path / "found" / "results").glob("*uncertainty.npz")
    capsys.readouterr()
    found = Result.load(file)
    assert found.of("accuracy") == history.test_accuracy[-1]
    assert found.of("nll") == pytest.approx(history.test_nll[-1], rel=1e-5)

    # The same command again: refused without --resume, and with it nothing is left to do.
    assert "holds a run after 4 steps; go on with it by --resume" in refused(
        capsys, "train", "quick", *TINY, *exact, "--out", run
    )
    before = read_state_dict(run / "model.safetensors")
    assert main(["train", "quick", *TINY, *exact, "--out", f"{run}", "--resume"]) == 0
    after = read_state_dict(run / "model.safetensors")
    assert all(torch.equal(after[name], before[name]) for name in before)
    said = refused(
        capsys, "train", "quick", *TINY, *exact, "--set", "lr=1e-4", "--out", run, "--resume"
    )
    assert "recipe lr 0.002 there, 0.0001 here" in said


@pytest.mark.usefixtures("without_figures")
def test_the_trajectory_reads_the_snapshots(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "quick", *TINY, "--out", str(run)]) == 0
    files = sorted(map(str, (run / "snapshots").iterdir()))
    options = ["--snapshots", *files, "--out", f"{tmp_path}/way"]
    assert main(["trajectory", "resnet20", *options]) == 0
    (file,) = (tmp_path / "way" / "results").glob("*trajectory.npz")
    assert len(Result.load(file)) == 3


def test_recipes_are_listed_and_printed(capsys):
    assert main(["recipes"]) == 0
    assert "strong_cifar" in capsys.readouterr().out
    assert main(["recipes", "strong_cifar", "--set", "lr=1e-3"]) == 0
    text = capsys.readouterr().out
    assert "lr: 0.001\n" in text
    assert "rand_augment: rand-m9-n2-mstd1.0\n" in text


# What a user can get wrong.


@pytest.mark.parametrize(
    ("recipe", "options", "sentence"),
    [
        ("quik", [], "unknown recipe 'quik'; did you mean quick"),
        ("quick", ["--set", "learning=1"], "recipes have no field 'learning'"),
        ("quick", ["--set", "lr=fast"], "lr is 'fast'; wants a number"),
        ("quick", ["--set", "batch_size=999"], "batch_size is 999, but"),
        (
            "quick",
            ["--set", "drop_path=0.1", "--model", "torchvision:resnet18"],
            "without drop_path=0.1",
        ),
        ("quick", ["--log", "paper"], "no log 'paper'; there is tensorboard, wandb, trackio"),
        ("quick", ["--subset", "1.5"], "fraction is 1.5; wants a part"),
        ("quick", ["--set", "distil=hard"], "distil is 'hard', and of teachers none is given"),
        ("quick", ["--set", "batchsize=3"], "no field 'batchsize'; did you mean batch_size?"),
        ("quick", ["--set", "milestones=1"], "milestones is 1 and would do nothing; it is for"),
        ("weak_cnn", [], "milestones are 60, 120, 160 after 1 of warm-up, but training ends"),
        (
            "quick",
            ["--set", "mix_probability=0.5"],
            "mix_probability is 0.5 and would do nothing",
        ),
        ("quick", ["--set", "switch_probability=0"], "it is for mixup with cutmix, without"),
        ("quick", ["--split", "dev"], "shapes has no split 'dev'; it has train, test"),
        ("quick", ["--set", "optimizer=adamx"], "unknown optimizer 'adamx'; did you mean"),
        (
            "quick",
            ["--set", "distil=soft", "--teacher", "resnet20?num_classes=7"],
            "the teacher resnet20?num_classes=7 has random weights; name a checkpoint",
        ),
        ("quick", ["--device", "gpu7"], "device 'gpu7' cannot be used here"),
    ],
)
def test_what_cannot_be_trained_is_told(tmp_path, capsys, recipe, options, sentence):
    said = refused(capsys, "train", recipe, *TINY, *options, "--out", tmp_path / "run")
    assert sentence in said


def test_epochs_below_zero_are_told(capsys):
    said = refused(capsys, "recipes", "quick", "--set", "epochs=-1")
    assert said.endswith("recipe: epochs is -1; wants more than 0")


@pytest.mark.parametrize("text", ["- a\n", "hello\n", "1: 2\n"])
def test_a_file_that_is_no_recipe_is_told(tmp_path, capsys, text):
    (tmp_path / "mine.yaml").write_text(text)
    out = ["--out", tmp_path / "run"]
    said = refused(capsys, "train", tmp_path / "mine.yaml", *TINY, *out)
    assert said.endswith("mine.yaml holds no fields; wants lines such as lr: 1e-3")


def test_a_folder_that_is_a_file_is_told(tmp_path, capsys):
    (tmp_path / "run").touch()
    said = refused(capsys, "train", "quick", *TINY, "--out", tmp_path / "run")
    assert said.endswith("run is a file; name a folder to keep the run in")


def test_test_images_of_other_classes_are_told(tmp_path, capsys):
    for name in "abc":
        (tmp_path / "own" / "test" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "own" / "test" / name / "0.png")
    test = ["--test", f"folder:{tmp_path}/own", "--out", tmp_path / "run"]
    said = refused(capsys, "train", "quick", *TINY, *test)
    assert "has 3 classes and the images to train on have 10; evaluate on images of" in said


def test_other_test_images_are_another_run(tmp_path, capsys):
    run = ["train", "quick", *TINY, "--out", tmp_path / "run"]
    assert main([str(a) for a in run]) == 0
    assert "95 % interval" in capsys.readouterr().out
    said = refused(capsys, *run, "--resume", "--test-split", "train")
    assert "test data" in said
    said = refused(capsys, *run, "--resume", "--test-limit", "10")
    assert "20 images there" in said
    assert "10 images here" in said


def test_a_split_without_images_is_told(tmp_path, capsys):
    (tmp_path / "own" / "train" / "cats").mkdir(parents=True)
    data = ["--data", f"folder:{tmp_path}/own", "--model", "resnet20"]
    said = refused(capsys, "train", "quick", *data, "--out", tmp_path / "run")
    assert "holds no image; wants" in said


def test_a_model_of_other_classes_is_told(tmp_path, capsys):
    options = ["--data", "shapes", "--limit", "20", "--out", tmp_path / "run"]
    model = ["--model", "resnet20?num_classes=7", "--set", "batch_size=10"]
    said = refused(capsys, "train", "quick", *options, *model)
    assert "gives (1, 7) for an image and shapes" in said
    assert "has 10 classes; wants one logit for each class" in said
    assert said.endswith("such as 'resnet20?num_classes=10'")


@pytest.mark.parametrize(
    ("option", "wrong"), [("--workers", "-1"), ("--minutes", "-5"), ("--minutes", "nan")]
)
def test_numbers_below_zero_are_told(tmp_path, capsys, option, wrong):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "quick", *TINY, option, wrong, "--out", str(tmp_path)])
    assert f"{wrong!r} is not a " in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False])
def test_ctrl_c_says_what_is_kept(tmp_path, capsys, monkeypatch, kept):
    def interrupted(job, *_, **__):
        if kept:
            job.folder.mkdir()
            write_state(job.folder, {"step": 1})
        raise KeyboardInterrupt

    monkeypatch.setattr("visprism.training.train", interrupted)
    assert main(["train", "quick", *TINY, "--out", f"{tmp_path}/run"]) == 130
    way_on = f"{tmp_path}/run/last.ckpt is kept, and the same command with --resume goes on"
    told = f"{way_on} from it" if kept else "no state was kept yet"
    assert capsys.readouterr().err == f"visprism: interrupted; {told}\n"


def test_a_log_whose_package_is_missing_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr(
        "visprism.training.loggers.find_spec", lambda name: None if name == "wandb" else name
    )
    said = refused(capsys, "train", "quick", *TINY, "--log", "wandb", "--out", tmp_path / "run")
    assert "wandb is not installed; `pip install wandb` installs it" in said


@pytest.mark.parametrize("text", ["lr", "=1"])
def test_a_change_reads_field_value(text, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "quick", *TINY, "--set", text, "--out", str(tmp_path)])
    assert f"{text!r} should read FIELD=VALUE" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_know_its_model_is_told(tmp_path, capsys):
    from visprism.models import load_model, save_checkpoint

    save_checkpoint(load_model("resnet20").model, tmp_path / "bare.safetensors")
    path = str(tmp_path / "bare.safetensors")
    said = refused(
        capsys, "evaluate", path, "--data", "shapes", "--limit", "8", "--out", tmp_path / "o"
    )
    assert "does not say which model it is of; name it before the file" in said


def test_a_folder_without_splits_is_trained_on_whole_and_nothing_is_evaluated(tmp_path, capsys):
    for number in range(12):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (20 * number, 0, 0)).save(folder / f"{number}.png")
    where = ["--data", f"folder:{tmp_path / 'images'}", "--out", str(tmp_path / "run")]
    how = ["--model", "resnet20?num_classes=2", "--epochs", "2", "--set", "batch_size=6"]
    assert main(["train", "quick", *how, *where]) == 0
    assert "nothing was evaluated" in capsys.readouterr().out
    history = Result.load(tmp_path / "run" / "history.npz")
    assert history.step.tolist() == [2, 4]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "curves-loss.png" in names
    assert "curves-accuracy.png" not in names
