"""Bad input: one sentence, exit code 2, and nothing is written."""

import os
import pickle
import re

import pytest
import torch
from PIL import Image

from visprism.cli import main

TINY = "--data shapes --limit 4 --batch-size 4 --out OUT"
SPARSITY = f"sparsity resnet20 {TINY}"
EXAMINE = f"examine resnet20 {TINY}"
TRAIN = "train quick --model resnet20 --data shapes --limit 128 --epochs 1 --out OUT"
HARMONIZE = "harmonize resnet20 --out OUT"
ON = "sparsity resnet20 --out OUT --data"
MODULE = """
from torch import nn

class TwoImages(nn.Module):
    def forward(self, x, y):
        return x + y

def two():
    return TwoImages()

def training():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    model.eval = lambda: model.train()
    return model
"""
CASES = [
    # Commands and arguments.
    ("sparcity", "unknown command 'sparcity'. Did you mean sparsity"),
    ("models --costs", "unknown argument '--costs'. Did you mean --cost?"),
    ("models qqqqq", "pattern must match a model of the zoo, timm or torchvision"),
    ("examine resnet20", "the following arguments are required: --data, --out"),
    ("anatomy", "the following arguments are required: MODEL"),
    (f"{EXAMINE} --analyses sparsity hessian", "a list is one word with commas"),
    # Values.
    (SPARSITY.replace("--limit 4", "--limit 0"), "--limit must be an integer of at least 1"),
    (SPARSITY.replace("--out OUT", "--out="), "--out must be the name of a folder, got ''"),
    (f"{SPARSITY} --size x32", "--size must be N or HxW of at most 65536 pixels, such as 224"),
    (f"{SPARSITY} --device warp", "--device must be available on this machine, got 'warp'"),
    (f"{SPARSITY} --threshold 2", "--threshold must be a number from 0 to 1, got 2"),
    (f"{SPARSITY} --lim 4", "unknown argument '--lim'. Did you mean --limit, --split?"),
    (f"{EXAMINE} --set sparsity", "--set must be ANALYSIS.OPTION=VALUE, got 'sparsity'"),
    (f"{EXAMINE} --set sparsity.treshold=1", "no option 'treshold'. Did you mean threshold?"),
    (f"hessian no.such {TINY} --precision fp16", "--precision must be 'fp32' for hessian, got"),
    # Models.
    (f"examine timm:resnet-18 {TINY}", "timm:resnet18"),
    (
        f"sparsity timm:vit_tiny_patch16_224 --random-weights --size 64 {TINY}",
        "images of 3x64x64",
    ),
    (f"sparsity MODULE:two {TINY}", "cannot process"),
    (f"sparsity MODULE:training {TINY}", "model must be in evaluation mode"),
    (f"sparsity resnet20@FOREIGN {TINY}", "fc.weight"),
    (f"sparsity resnet20@ATTACK {TINY}", "attack.pt"),
    (f"sparsity resnet20 resnet20 {TINY}", "models must have different names, got 'resnet20"),
    (f"sparsity resnet20 resnet20 {TINY} --labels left", "a separate label, got left"),
    # Data.
    (f"{ON} shape", "shapes"),
    (f"{ON} folder:EMPTY", "empty"),
    (f"{ON} shapes?size=huge", "size"),
    (f"{ON} folder:PHOTOS", "bad.png"),
    (f"{ON} folder:PHOTOS", "--skip-bad"),
    # Folders.
    (
        "sparsity resnet20 --data shapes --limit 4 --out FILE/out",
        "--out must be a folder that can be",
    ),
    (
        "sparsity resnet20.shapes --data shapes --limit 3 --out STUDIED",
        "Choose another folder, or pass --fresh to start over.",
    ),
    # Training.
    (f"{TRAIN} --set lr", "--set must be FIELD=VALUE, such as lr=1e-3, got 'lr'"),
    (
        f"{TRAIN} --log paper",
        "loggers must be of csv, mlflow, tensorboard, trackio, wandb, got 'paper'",
    ),
    (f"{TRAIN} --split dev", "split of shapes must be one of train, test, got 'dev'"),
    ("train quick --model resnet20 --data shapes --out FILE", "folder must be a directory"),
    (
        TRAIN.replace("20 ", "20?num_classes=7 ", 1),
        "Name the model as resnet20?num_classes=10.",
    ),
    # Harmonize.
    (
        f"{HARMONIZE} --placement layer9",
        "one number per stage, or names of residual Conv blocks",
    ),
    (f"{HARMONIZE} --search quick", "--search needs --data"),
    (f"{HARMONIZE} --repeats 2", "without --search"),
    (f"{HARMONIZE} --heads 1,2", "--heads must be one number, or one per stage (3 stages"),
    # Settings that contradict each other, or are given twice.
    (f"{EXAMINE} --verbose --quiet", "only one of --json, --verbose and --quiet must be given"),
    (f"{EXAMINE} --json --quiet", "only one of --json, --verbose and --quiet must be given"),
    (f"{EXAMINE} --pretrained --random-weights", "not allowed with argument"),
    (f"{EXAMINE} --random-weights --pretrained", "not allowed with argument"),
    (f"{EXAMINE} --seed 1 --seed=2", "--seed must be given once, got it 2 times"),
    (f"{EXAMINE} --analyses=", "analyses must be texts"),
    (f"{EXAMINE} --analyses variance,,fourier", "analyses must be texts"),
    (f"{EXAMINE} --labels=", "labels must be texts"),
    (f"{EXAMINE} --set fourier.profile=radial --set fourier.profile=radial", "set must give"),
    (f"{EXAMINE} --output nope", "output must be None for models of one tensor"),
    ("variance resnet20 --data shapes?size=8&size=9 --out OUT", "size must be given once"),
    ("variance resnet20?depth=1&depth=2 --data shapes --out OUT", "must be given once"),
    ("recipes quick --set lr=1 --set lr=2", "set must give each field once, got lr twice"),
]


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def places(studied, tmp_path_factory):
    """What the words in capitals of a command stand for."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "module.py").write_text(MODULE)
    (folder / "file").write_text("not a folder")
    (folder / "empty").mkdir()
    torch.save({"fc.weight": torch.zeros(3)}, folder / "foreign.pt")
    attack = pickle.dumps({"state_dict": Attack(str(folder / "ran"))}, protocol=2)
    (folder / "attack.pt").write_bytes(attack)
    for name in ("cat/a.png", "cat/b.png", "dog/c.png"):
        (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 32), (90, 120, ord(name[4]))).save(folder / "photos" / name)
    (folder / "photos" / "dog" / "bad.png").write_bytes(b"not an image")
    yield {
        "STUDIED": studied,
        "OUT": folder / "out",
        "MODULE": folder / "module.py",
        "FILE": folder / "file",
        "EMPTY": folder / "empty",
        "FOREIGN": folder / "foreign.pt",
        "ATTACK": folder / "attack.pt",
        "PHOTOS": folder / "photos",
    }
    assert not (folder / "ran").exists()


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(("command", "sentence"), CASES)
def test_bad_input_is_one_sentence_and_leaves_nothing(command, sentence, places, capsys):
    for name, path in places.items():
        command = command.replace(name, str(path))
    assert main(command.split()) == 2
    printed = capsys.readouterr()
    *_, last = printed.err.strip().splitlines()
    assert last.startswith("visprism: ")
    assert sentence in last
    assert "Traceback" not in printed.err
    assert not printed.out
    assert not places["OUT"].exists()


def test_an_image_that_is_left_out_on_request_is_named(places, plugin, tmp_path, capsys):
    data = ["--data", f"folder:{places['PHOTOS']}", "--skip-bad"]
    assert main(["sparsity", "resnet20", *data, "--out", str(tmp_path)]) == 0
    assert "unreadable images left out (1): " in capsys.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"Unreadable images left out</th><td>1: [^<]*bad\.png", page)


def test_a_study_records_settings_that_an_analysis_cannot_have(plugin, tmp_path, capsys):
    words = EXAMINE.replace("OUT", str(tmp_path)).split()
    assert main([*words, "--analyses", "hessian,sparsity", "--precision", "bf16"]) == 0
    assert "Not measured: hessian (" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()


def test_too_little_memory_is_one_sentence_and_a_bug_has_a_traceback(monkeypatch, capsys):
    def fail(_self):
        raise errors.pop()

    errors = [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        MemoryError("Unable to allocate 16 GiB"),
    ]
    monkeypatch.setattr("visprism.cli.system.Doctor.run", fail)
    for _ in range(3):
        assert main(["doctor"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("visprism: there is not enough memory (")
    with pytest.raises(RuntimeError, match="mat1"):
        main(["doctor"])
