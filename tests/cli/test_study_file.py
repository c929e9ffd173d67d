"""Laws of study files (src/visprism/cli/study_file.py, src/visprism/study/study_file.py)."""

import json

import pytest
import torch
import yaml
from torch import nn

import visprism as vp
from visprism.cli import main
from visprism.cli.parser import parse
from visprism.study.study_file import STUDY_FILE

TEXT = """
models:
  small: resnet20?num_classes=10
data: shapes?size=32
limit: 8
batch_size: 4
analyses: [sparsity]
options:
  sparsity: {threshold: 0.05}
minutes: none
seed: 3
"""


@pytest.fixture
def stated(plugin, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def index(folder):
    return json.loads((folder / "study.json").read_text())


@pytest.mark.usefixtures("no_page")
def test_a_study_writes_the_file_that_reproduces_it(stated, tmp_path):
    """The same keys of results: weights, images, options and seed are the same."""
    first, again = tmp_path / "first", tmp_path / "again"
    assert main(["examine", str(stated), "--out", str(first)]) == 0
    written = yaml.safe_load((first / STUDY_FILE).read_text())
    expected = yaml.safe_load(TEXT) | {"effort": "quick"}
    assert written == {name: value for name, value in expected.items() if name != "minutes"}
    assert main(["examine", str(first / STUDY_FILE), "--out", str(again)]) == 0
    assert index(again)["entries"].keys() == index(first)["entries"].keys()
    headers = [
        index(folder)["header"] | {"seconds": 0, "speed": {}} for folder in (first, again)
    ]
    assert headers[0] == headers[1]
    assert (again / STUDY_FILE).read_bytes() == (first / STUDY_FILE).read_bytes()
    before = index(first)  # in the folder of its study the file resumes it
    assert main(["examine", str(first / STUDY_FILE)]) == 0
    assert index(first)["entries"] == before["entries"]


@pytest.mark.usefixtures("no_page")
def test_flags_after_the_file_take_precedence(stated, tmp_path):
    words = ["--limit", "4", "--set", "sparsity.threshold=0.2", "--out", str(tmp_path / "out")]
    assert main(["examine", str(stated), *words]) == 0
    written = yaml.safe_load((tmp_path / "out" / STUDY_FILE).read_text())
    assert written["limit"] == 4
    assert written["options"] == {"sparsity": {"threshold": 0.2}}


@pytest.mark.parametrize("label", ["lr=0.1, wd=0", "@home: a", 'the "best"', "two\nlines", ""])
def test_a_label_may_be_any_text(tmp_path, label):
    path = tmp_path / "mine.yaml"
    models = {label: "resnet20?num_classes=10", "b": "resnet20"}
    path.write_text(yaml.safe_dump({"models": models, "data": "shapes", "out": "x"}))
    assert parse(["examine", str(path)])[0].labeled() == models


def test_a_list_is_one_value_and_a_size_has_its_sign(tmp_path):
    path = tmp_path / "mine.yaml"
    fields = {"size": [24, 32], "mean": [-0.5, 0.5, 0], "train_data": None, "skip_bad": True}
    path.write_text(TEXT + yaml.safe_dump({"out": "x", **fields}))
    command, _ = parse(["examine", str(path)])
    assert command.size == (24, 32)
    assert command.mean == (-0.5, 0.5, 0.0)
    assert command.train_data is None
    assert command.skip_bad
    assert not command.verbose


def test_weights_are_published_or_random_where_a_flag_or_a_field_says_so(tmp_path):
    path = tmp_path / "mine.yaml"
    for field, flags, pretrained in (
        ("", [], None),
        ("", ["--pretrained"], True),
        ("pretrained: true", [], True),
        ("pretrained: false", [], False),
        ("pretrained: true", ["--random-weights"], False),
    ):
        path.write_text(f"{TEXT}out: x\n{field}\n")
        assert parse(["examine", str(path), *flags])[0].pretrained is pretrained


def test_a_study_file_writes_only_into_its_folder(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{TEXT}out: x\n")
    assert parse(["examine", str(path)])[0].out == tmp_path / "x"
    path.write_text(f"{TEXT}out: ../x\n")
    assert main(["examine", str(path)]) == 2
    assert "must be inside the file's folder, got '../x'" in capsys.readouterr().err


def test_without_a_device_a_command_computes_on_the_accelerator_if_there_is_one(tmp_path):
    words = ["examine", "resnet20", "--data", "shapes", "--out", str(tmp_path)]
    for flags, device in ([], None), (["--device", "auto"], None), (["--device", "cpu"], "cpu"):
        run = parse([*words, *flags])[0].new_run(vp.Run().progress)
        assert run.compute.device == device


def test_a_study_of_objects_has_no_file(plugin, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)).eval()
    model(torch.zeros(2, 3, 8, 8))
    batches = [(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))]
    vp.examine(model, batches, analyses=["sparsity"], out=tmp_path / "out")
    assert (tmp_path / "out" / "study.json").is_file()
    assert not (tmp_path / "out" / STUDY_FILE).exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("limit: 8", "limt: 8", "PATH has no field 'limt'. Did you mean limit"),
        ("limit: 8", "limit: 0", "PATH: --limit must be an integer of at least 1"),
        ("limit: 8", "pretrained: maybe", "PATH: argument --pretrained: .* 'maybe'"),
        ("limit: 8", "limit: 8\nlimit: 9", "must name each field once, got limit twice"),
        ("limit: 8", "limit: !!python/name:os.system", "is not valid YAML"),
        ("limit: 8", "a: &a 3\nlimit: *a", "must not use YAML aliases"),
        ("  small: resnet20?num_classes=10", "", "PATH: .* required: MODEL"),
        ("threshold: 0.05", "threshhold: 0.05", "has no option 'threshhold'"),
        ("sparsity: {threshold: 0.05}", "sparsity: 3", "must be options by analysis"),
        ("data: shapes?size=32", "", "PATH: .* required: --data"),
    ],
)
def test_a_mistake_is_one_sentence(stated, tmp_path, capsys, old, new, sentence):
    import re

    assert old in TEXT
    stated.write_text(TEXT.replace(old, new))
    assert main(["examine", str(stated), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert re.search(sentence.replace("PATH", re.escape(str(stated))), error)
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
