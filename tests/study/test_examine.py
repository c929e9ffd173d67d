"""Laws of studies (src/visprism/study): any module, any loader, the same images for all."""

import sys
import time
from dataclasses import fields
from inspect import signature
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
import transformers
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchvision import transforms

import visprism as vp
from visprism import (
    Finished,
    InputError,
    Needs,
    Preprocessing,
    Study,
    examine,
    load_data,
)
from visprism.core.request import StudyOptions


def images_of(loader):
    return torch.cat([images for images, _ in loader])


class Stream(IterableDataset):
    """Gives what an iterable gives."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def test_the_form_of_the_data_does_not_matter(net, loader, brightness):
    images, targets = images_of(loader), torch.cat([t for _, t in loader])
    data = TensorDataset(images, targets)
    batches, alone = DataLoader(data, batch_size=7), [images[:12], images[12:]]
    for form in (loader, batches, data, iter(loader), alone, Stream(data), Stream(batches)):
        study = examine(net(), form, analyses=[brightness])
        assert study.models == ("Net",)
        result = study["Net"]["brightness"]
        assert result.provenance.images == 20
        assert result.mean[0] == pytest.approx(float(images.double().mean()))


def test_pixels_are_recovered_exactly_from_normalized_images(net, brightness):
    pixels = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8)
    way = Preprocessing((8, 8), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    mean, std = (torch.tensor(v)[:, None, None] for v in (way.mean, way.std))
    normalized = (pixels / 255 - mean) / std
    seen = []

    class Look(type(brightness)):
        name = "look"

        def measure(self, subject, run):
            seen.extend(part for _, part in subject.pixel_batches())
            return super().measure(subject, run)

    study = examine(net(), [normalized], analyses=[Look()], preprocessing=way)
    assert torch.equal(torch.cat(seen), pixels[study.positions])


class SortedByClass(TensorDataset):
    """24 images of 3 classes, one class after the other; the value of an image is its index."""

    def __init__(self):
        images = torch.arange(24.0)[:, None, None, None].expand(24, 3, 8, 8) / 24
        self.targets = torch.arange(24) // 8
        super().__init__(images, self.targets)


@pytest.mark.parametrize("limit", [None, 9])
def test_what_a_study_measures_of_an_image_is_of_the_one_at_that_position(
    net, brightness, limit
):
    data = DataLoader(SortedByClass(), batch_size=5, shuffle=True)
    study = examine(net(), data, analyses=[brightness], limit=limit)
    values = study["Net"]["brightness"].mean.by_unit[:, 0]
    np.testing.assert_allclose(values, study.positions / 24, rtol=1e-6)
    assert len(values) == (limit or 24)
    classes = data.dataset.targets.numpy()[study.positions]
    for number in range(3, len(classes) + 1, 3):
        assert set(np.bincount(classes[:number])) == {number // 3}


def test_every_run_reads_the_same_images_of_a_loader_that_shuffles(net, brightness, tmp_path):
    shuffled = DataLoader(SortedByClass(), batch_size=5, shuffle=True)
    options = {"analyses": [brightness], "out": tmp_path}
    first, events = examine(net(), shuffled, **options), []
    again = examine(net(), shuffled, listener=events.append, **options)
    assert [e.resumed for e in events if isinstance(e, Finished)] == [True]
    for study in (again, Study.load(tmp_path)):
        np.testing.assert_array_equal(first.positions, study.positions)


def test_a_compiled_module_is_measured_as_it_is_written(net, loader):
    plain = examine(net(), loader, analyses="variance")
    study = examine(torch.compile(net(), backend="eager"), loader, analyses="variance")
    assert study.models == ("Net",)
    assert study["Net"]["variance"] == plain["Net"]["variance"]


MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
CONFIG = {"input_size": (3, 32, 32), "mean": MEAN, "std": STD, "crop_pct": 1.0}


@pytest.mark.parametrize(
    ("attributes", "images"),
    [
        ({}, {}),
        ({"preprocessing": Preprocessing((32, 32), MEAN, STD)}, {}),
        ({"pretrained_cfg": CONFIG}, {}),
        ({"default_cfg": CONFIG}, {}),
        ({}, {"mean": MEAN, "std": STD}),
    ],
)
def test_pixels_are_normalized_as_the_module_states(net, brightness, attributes, images):
    model, events = net(), []
    for name, value in attributes.items():
        setattr(model, name, value)
    study = examine(
        model,
        "shapes",
        analyses=[brightness],
        limit=4,
        **images,
        listener=events.append,
    )
    result = study["Net"]["brightness"]
    data, stated = load_data("shapes"), bool(attributes or images)
    pixels = np.stack([np.asarray(data[int(i)][0]) for i in study.positions]) / 255
    expected = ((pixels - MEAN) / STD if stated else pixels).mean()
    assert result.mean[0] == pytest.approx(expected, rel=1e-5)
    for text in (events[0].preparation[0], result.provenance.sentence()):
        assert ("no normalization stated; --normalization" in text) is not stated
        assert ("mean (0.4, 0.5, 0.6)" in text) is stated


HALF = (0.5, 0.5, 0.5)
WEIGHTS = torchvision.models.ResNet18_Weights.DEFAULT


STATED = {"input_size": (3, 32, 32), "mean": (0.1,) * 3, "std": (0.4,) * 3}
OF_HALF = "mean and std of half", "half, but the model states mean (0.1, "
UNKNOWN = "no normalization stated", "std (0.4, 0.4, 0.4), as the model states"
QUARTERS = transforms.Normalize(0.25, 0.25), transforms.Normalize(1.0, 2.0)


@pytest.mark.parametrize(
    ("parts", "unstated", "stated"),
    [
        ([transforms.Normalize(0.5, 0.5), transforms.RandomErasing()], *OF_HALF),
        ([transforms.Normalize(HALF, HALF)], *OF_HALF),
        ([WEIGHTS.transforms(mean=HALF, std=HALF)], *OF_HALF),
        ([transforms.Compose(QUARTERS)], *OF_HALF),
        ([transforms.ToTensor()], "pixels in [0, 1]", "[0, 1], but the model states mean"),
        ([transforms.ToTensor(), transforms.Lambda(lambda x: x)], *UNKNOWN),
        ([transforms.RandomErasing()], *UNKNOWN),
    ],
)
def test_the_normalization_of_a_loader_is_that_of_its_transform_or_of_the_model(
    net, brightness, parts, unstated, stated
):
    data = SortedByClass()
    data.transform = transforms.Compose(parts)
    for attributes, text in (({}, unstated), ({"pretrained_cfg": STATED}, stated)):
        model = net()
        vars(model).update(attributes)
        study = examine(model, DataLoader(data, batch_size=8), analyses=[brightness])
        assert text in study["Net"]["brightness"].provenance.preprocessing


@pytest.mark.parametrize(
    ("given", "size", "mean"),
    [
        (WEIGHTS, 224, (0.485, 0.456, 0.406)),
        (type(WEIGHTS), 224, (0.485, 0.456, 0.406)),
        (WEIGHTS.transforms(), 224, (0.485, 0.456, 0.406)),
        (CONFIG | {"input_size": (3, 24, 24)}, 24, MEAN),
        (transformers.ViTImageProcessor(size={"height": 24, "width": 24}), 24, (0.5,) * 3),
    ],
)
def test_preprocessing_is_what_libraries_state_it_with(net, brightness, given, size, mean):
    study = examine(net(), "shapes", preprocessing=given, analyses=[brightness], limit=2)
    origin = study["Net"]["brightness"].provenance
    assert origin.image_shape == (3, size, size)
    words = {0.485: "imagenet", 0.4: "mean (0.4, 0.5, 0.6)", 0.5: "half"}[mean[0]]
    assert words in origin.preprocessing


def test_a_normalization_is_given_once(net):
    both, way = {"mean": (0.5,), "std": (1.0,), "normalization": "half"}, Preprocessing((8, 8))
    for options, given, message in (
        ({"mean": (0.5,) * 3}, None, "mean and std must be given together"),
        (both, None, "got both: half"),
        ({"normalization": "half"}, way, "got both: 8x8 bicubic"),
        ({}, "imagenet", "preprocessing must be a Preprocessing, .* got str"),
    ):
        with pytest.raises(InputError, match=message):
            examine(net(), "shapes", **options, preprocessing=given)


def test_a_measurement_stops_at_the_deadline(net, loader, brightness):
    class Endless(type(brightness)):
        name = "endless"

        def measure(self, subject, run):
            for _ in run.track(iter(int, 1), "forever"):
                time.sleep(0.01)

    begin = time.monotonic()
    study = examine(net(), loader, analyses=[Endless()], minutes=0.02)
    assert time.monotonic() - begin < 1.2 * 1.1 + 2.0
    assert "time budget" in study.failures[0].reason


def test_what_an_analysis_needs_and_the_data_lack_is_a_reason(net, loader, brightness):
    class Labeled(type(brightness)):
        name = "labeled"
        needs = Needs.TARGETS

    class Pixels(type(brightness)):
        name = "pixels"
        needs = Needs.PIXELS

    study = examine(net(), [images_of(loader)], analyses=[Labeled(), Pixels()])
    reasons = {f.analysis: f.reason for f in study.failures}
    assert "no labels in" in reasons["labeled"]
    assert "normalization of the images is unknown" in reasons["pixels"]


def test_a_study_with_a_folder_is_resumed(net, loader, brightness, tmp_path):
    measured = []

    class Counted(type(brightness)):
        def measure(self, subject, run):
            measured.append(subject.name)
            return super().measure(subject, run)

    def run(models, offset=0.0, **options):
        measured.clear()
        return examine(models, loader, analyses=[Counted(offset)], out=tmp_path, **options)

    models, events = {"a": net(), "b": net(1)}, []
    first = run({"a": models["a"]})
    both = run(models)
    assert measured == ["b"]
    assert both["a"]["brightness"] == first["a"]["brightness"]
    run(models, offset=1.0)
    assert measured == ["a", "b"]
    run(models, fresh=True)
    assert measured == ["a", "b"]
    nn.init.zeros_(models["a"].head.weight)
    run(models, listener=events.append)
    assert measured == ["a"]
    assert "stored results of these models that are not shown: 1" in events[0].preparation[-1]


def test_what_a_folder_holds_of_models_that_are_not_named_is_part_of_the_study(
    net, loader, tmp_path
):
    models = {name: net(seed) for seed, name in enumerate("abc")}
    analyses = ["variance", "calibration"]
    options, events = {"analyses": analyses, "out": tmp_path}, []
    examine({name: models[name] for name in "ab"}, loader, **options)
    added = examine({"c": models["c"]}, loader, listener=events.append, **options)
    together = examine(models, loader, analyses=analyses)
    assert {e.entry.models for e in events if isinstance(e, Finished)} == {("c",)}
    for study in (added, Study.load(tmp_path)):
        assert study.models == together.models
        lines = [
            [
                line.cells for line in s.glance() if line.question.topic != "cost"
            ]  # is timed again
            for s in (study, together)
        ]
        assert lines[0] == lines[1]
        assert str(study.table()[0]) == str(together.table()[0])  # with all differences
    pairs = {e.models for e in added.entries if len(e.models) == 2}
    assert pairs == {("a", "b")}  # what is measured of two models together
    again = examine({"a": models["a"]}, loader, **options)
    assert again.models == added.models
    assert {e.models for e in again.entries} == {e.models for e in added.entries}


def test_what_cannot_be_compared_in_a_folder_is_said(net, loader, brightness, tmp_path):
    examine({"a": net()}, loader, analyses=[brightness], out=tmp_path)
    study = examine({"b": net()}, loader, analyses=[type(brightness)(offset=1.0)], out=tmp_path)
    assert study.models == ("b",)
    (sentence,) = study.header["alarms"]
    assert sentence.startswith("a: stored in this folder and not shown, since brightness must")
    models = {"a": net(), "b": net()}
    study = examine(models, loader, analyses=[type(brightness)(offset=1.0)], out=tmp_path)
    assert not study.alarms + Study.load(tmp_path).alarms


def test_a_model_that_joins_a_folder_leaves_the_facts_of_its_run(net, loader, tmp_path):
    options = {"analyses": "variance", "out": tmp_path}
    examine({"a": net()}, loader, minutes=1, **options)
    next(tmp_path.glob("results/a-*.npz")).write_bytes(b"x")
    study = examine({"b": net()}, loader, effort="standard", **options)
    assert (study.header["effort"], study.header["budget"]) == ("standard", None)
    (failure,) = study.failures
    assert failure.model == "a"
    assert "was changed since it was measured" in failure.reason


def test_a_folder_of_another_study_or_with_files_of_the_user_is_refused(
    net, loader, brightness, tmp_path
):
    index, mine = tmp_path / "study" / "study.json", tmp_path / "mine" / "study.md"
    examine(net(), loader, analyses=[brightness], out=index.parent)
    with pytest.raises(InputError, match="same images in the same order"):
        examine(net(), loader[:1], analyses=[brightness], out=index.parent)
    index.write_text(index.read_text().replace("results/", "../results/"))
    with pytest.raises(InputError, match="must name files inside its folder"):
        Study.load(index.parent)
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(
        InputError, match=r"empty folder or hold a study, got .* with study\.md"
    ):
        examine(net(), loader, analyses=[brightness], out=mine.parent, fresh=True)
    assert list(mine.parent.iterdir()) == [mine]


def test_bad_input_is_refused_before_anything_is_measured(net, loader, brightness):
    model, furier = net(), {"analyses": ["furier"]}
    twice = {"options": {"brightness": {"offset": 1.0}}}
    other = {"analyses": ["fourier"], "options": {"fourier": {"profil": "radial"}}}
    sizes = [loader[0][0], torch.zeros(2, 3, 9, 9)]
    for given, data, options, match in (
        (model, [], {}, "data must have at least one image"),
        ({}, loader, {}, "models must name at least one model"),
        ([model, net()], loader, {}, "models must have different names, got 'Net' twice"),
        (net().train(), loader, {}, "model must be in evaluation mode"),
        (model, loader, {"minutes": float("nan")}, "minutes must be a number above 0"),
        (model, loader, {"minutes": 0}, "minutes must be a number above 0"),
        (model, loader, furier, "unknown analysis 'furier'. Did you mean fourier"),
        (model, loader, twice, "options of brightness must be given once"),
        (model, loader, other, "fourier has no option 'profil'. Did you mean profile"),
        (model, sizes, {}, "all batches must hold images of one size"),
        (model, [loader[0], loader[1][0]], {}, "either all batches or none must have targets"),
        (model, loader, {"on_error": "ignore"}, "on_error must be"),
        (model, 7, {}, "data must be an iterable of batches"),
        ("no-such-model", "no-such-data", {}, "unknown data 'no-such-data'"),
    ):
        with pytest.raises(InputError, match=match):
            examine(given, data, **{"analyses": [brightness], **options})


def test_images_that_a_model_cannot_process_are_described(net, loader):
    images, targets = loader[0]
    mapping = [{"image": images, "mask": images[:, 0]}]
    for model, data, match in (
        (net().double(), loader, "float32 images of 3x8x8, as its parameters are float64"),
        (net(), mapping, "cannot process a mapping with image, mask"),
        (net(), [(images[:, :1], targets)], "cannot process float32 images of 1x8x8"),
    ):
        with pytest.raises(InputError, match=match):
            examine(model, data, analyses=["fourier"])


@pytest.mark.parametrize("watched", [True, False])
def test_plan_and_failures_are_printed_where_somebody_watches(
    watched, net, loader, brightness, capsys, monkeypatch
):
    class Failing(type(brightness)):
        def measure(self, *_):
            raise ValueError("no luck")

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace() if watched else None)
    if not watched:
        monkeypatch.delitem(sys.modules, "ipykernel")
    examine(net(), loader, analyses=[Failing()])
    printed = capsys.readouterr()
    assert printed.out == ""
    if watched:
        assert printed.err.index("Plan:") < printed.err.index("no luck")
        assert "failed: brightness of Net: ValueError: no luck" in printed.err
    else:
        assert printed.err == ""


def test_every_option_of_the_command_line_is_an_argument_of_the_function(
    net, loader, brightness
):
    """Each is declared once; what Python lacks in a call is a sentence, too."""
    arguments = signature(examine).parameters
    assert {one.name for one in fields(StudyOptions)} < set(arguments)
    assert all(f"    {name}: " in examine.__doc__ for name in arguments)
    assert examine(net(), loader, analyses=[brightness], limit=3).entries[0].images == 3
    with pytest.raises(
        TypeError, match=r"examine\(\) got an unexpected keyword argument 'limt'"
    ):
        examine(net(), loader, limt=3)
    with pytest.raises(InputError, match="seed must be given once, got 1 and a run"):
        examine(net(), loader, seed=1, run=vp.Run())
