"""Names of classes: matched between a model and its data, whatever way the data comes in."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import visprism as vp
from visprism.images.class_names import matched_outputs
from visprism.passes.outcomes import Outcomes

COLORS = {"red": (250, 20, 20), "green": (20, 250, 20), "blue": (20, 20, 250)}


class Color(nn.Module):
    """Classes red, green, blue: the channel with the largest mean."""

    def __init__(self, names=()):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1, bias=False)
        self.conv.weight.data = 20 * torch.eye(3)[:, :, None, None]
        if names:
            self.class_names = names

    def forward(self, x):
        return self.conv(x).mean((2, 3))


def made_folder(path, names, number=4):
    for i, (name, color) in enumerate(names.items()):
        (path / name).mkdir(parents=True)
        for k in range(number):
            Image.new("RGB", (8, 8), tuple(min(255, c + k + i) for c in color)).save(
                path / name / f"{k}.png"
            )
    return path


def accuracy(model, data):
    study = vp.examine({"m": model.eval()}, data, analyses=["calibration"])
    assert not study.failures, study.failures
    return float(study["m"]["calibration"].accuracy)


@pytest.mark.parametrize("way", ["folder", "dataset", "loader", "subset"])
def test_classes_in_another_order_are_matched_by_name_in_every_way(tmp_path, way):
    root = made_folder(tmp_path / "data", COLORS)  # folders: blue, green, red
    steps = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    data = {
        "folder": str(root),
        "dataset": ImageFolder(str(root)),
        "loader": DataLoader(ImageFolder(str(root), steps), batch_size=5),
        "subset": Subset(ImageFolder(str(root)), range(12)),
    }[way]
    assert accuracy(Color(["red", "green", "blue"]), data) == 1
    assert accuracy(Color(), data) == pytest.approx(1 / 3)  # the model's names are not known


def test_a_part_of_the_classes_is_matched_and_an_unknown_class_is_refused(tmp_path):
    part = made_folder(tmp_path / "part", {"Blue": (0, 0, 200), "RED": (200, 0, 0)})
    assert accuracy(Color(["red", "green", "blue"]), str(part)) == 1
    unknown = made_folder(tmp_path / "unknown", COLORS | {"zebra": (9, 9, 9)})
    study = vp.examine(
        {"m": Color(["red", "green", "blue"]).eval()}, str(unknown), analyses=["calibration"]
    )
    (failure,) = study.failures
    assert "zebra" in failure.reason
    assert "model.class_names" in failure.reason


def test_folders_named_by_wordnet_are_classes_of_imagenet(tmp_path):
    root = made_folder(tmp_path / "wordnet", {"n01443537": (9, 9, 9), "n01440764": (0, 0, 0)})
    model = timm.create_model("resnet18", num_classes=1000).eval()
    seen = []
    study = vp.examine(
        {"m": model}, str(root), analyses=["calibration"], listener=seen.append,
        size=(32, 32),
    )  # fmt: skip
    outcomes = next(r for r in study["m"].results("calibration") if isinstance(r, Outcomes))
    assert set(outcomes.target.tolist()) == {0, 1}
    (planned,) = (event for event in seen if isinstance(event, vp.Planned))
    assert "2 of the model's 1000" in " ".join(planned.preparation)


def test_where_one_side_has_names_the_plan_shows_the_pairs(tmp_path):
    root = made_folder(tmp_path / "data", COLORS)
    seen = []
    vp.examine({"m": Color().eval()}, str(root), analyses=["calibration"], listener=seen.append)
    (planned,) = (event for event in seen if isinstance(event, vp.Planned))
    assert "output 0 = blue, output 1 = green, output 2 = red" in " ".join(planned.preparation)


def test_folders_named_by_integers_are_in_numeric_order(tmp_path):
    root = made_folder(tmp_path / "data", {str(i): (i, i, i) for i in range(12)}, number=1)
    images = vp.load_data(str(root))
    assert images.class_names == tuple(map(str, range(12)))
    assert [p.getpixel((0, 0))[0] // 2 for p, _ in images] == list(range(12))
    assert "numeric order" in " ".join(images.notes)


@pytest.mark.parametrize("names", [("Training", "Testing"), ("training_set", "test_set")])
def test_usual_names_of_splits_are_splits(tmp_path, names):
    for name in names:
        made_folder(tmp_path / name, COLORS)
    images = vp.load_data(str(tmp_path))
    assert images.split == "test"
    assert images.class_names == ("blue", "green", "red")
    assert vp.load_data(str(tmp_path), split=names[0]).split == "train"


def test_files_that_are_not_read_are_counted_and_every_format_is_read(tmp_path):
    root = made_folder(tmp_path / "data", COLORS)
    (root / "red" / "notes.txt").write_text("x")
    (root / "labels.csv").write_text("x")
    Image.new("RGB", (8, 8)).save(root / "red" / "more.tga")
    Image.new("RGB", (8, 8)).save(root / "red" / "more.jp2")
    images = vp.load_data(str(root))
    assert len(images) == 14
    assert "1 .csv" in images.notes[0]
    assert "1 .txt" in images.notes[0]


def test_names_are_matched_exactly_before_they_are_normalized():
    assert matched_outputs([["cat"], ["Cat"]], ["Cat", "cat"]).tolist() == [1, 0]
    assert matched_outputs([["crane"], ["x"], ["crane"]], ["crane", "x"]).tolist() == [0, 1]
    assert matched_outputs([["a"], ["crane"], ["crane"]], ["crane"]).tolist() == [-1]
    assert matched_outputs([["tench, Tinca tinca"]], ["tinca-tinca"]).tolist() == [0]


def test_a_file_names_the_outputs(tmp_path):
    root = made_folder(tmp_path / "data", COLORS)
    (tmp_path / "names.txt").write_text("red\ngreen\nblue\n")
    model = vp.load_model(f"resnet20?num_classes=3&classes={tmp_path / 'names.txt'}").model
    assert tuple(model.class_names) == ("red", "green", "blue")
    study = vp.examine({"m": model}, str(root), analyses=["calibration"])
    outcomes = next(r for r in study["m"].results("calibration") if isinstance(r, Outcomes))
    colors = {"blue": 2, "green": 1, "red": 0}
    positions = np.array(study.header["positions"])
    assert outcomes.target.tolist() == [[*colors.values()][p // 4] for p in positions]
