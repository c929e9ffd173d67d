"""``visprism evaluate`` and ``robustness``: what they write, and what they refuse."""

import numpy as np
import pytest
from PIL import Image

from visprism.cli import main
from visprism.data import batches, load_data
from visprism.measure.outputs import predict, uncertainty
from visprism.models import load_model
from visprism.results.base import Result

TINY = ["--data", "shapes", "--limit", "20", "--batch-size", "8"]


def refused(capsys, *arguments):
    assert main([str(a) for a in arguments]) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("visprism: ")
    return last


def test_evaluate_writes_every_metric_and_its_figures(tmp_path, capsys):
    options = [*TINY, "--cutoff", "0.2,0.5", "--out", str(tmp_path)]
    assert main(["evaluate", "resnet20", *options]) == 0
    said = capsys.readouterr().out
    assert "of the images are right, NLL" in said
    figures = {p.stem for p in (tmp_path / "figures").glob("*.png")}
    assert figures == {"anatomy", "reliability", "reliability-confidence", "risk-coverage"}
    found = Result.load(tmp_path / "results" / "resnet20-random-weights-uncertainty.npz")
    loaded = load_model("resnet20")
    images = load_data("shapes", limit=20, side=32)
    alone = uncertainty(
        predict(loaded.model, batches(images, loaded.preprocessing, 20)),
        cutoff=[0.2, 0.5],
        resamples=0,
    )
    np.testing.assert_array_equal(found.metric, alone.metric)
    np.testing.assert_allclose(found.value, alone.value, atol=1e-5)
    assert found.provenance.command.startswith("visprism evaluate resnet20")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Accuracy and uncertainty" in page


@pytest.mark.usefixtures("without_figures")
def test_robustness_measures_what_is_asked_for(tmp_path, capsys):
    options = [*TINY, "--corruptions", "fog,contrast", "--severities", "1,5"]
    options += ["--perturbations", "translate", "--out", str(tmp_path)]
    assert main(["robustness", "resnet20", *options]) == 0
    found = Result.load(tmp_path / "results" / "resnet20-random-weights-robustness.npz")
    conditions = dict.fromkeys(
        zip(found.corruption.tolist(), found.severity.tolist(), strict=True)
    )
    assert list(conditions) == [
        ("clean", 0), ("fog", 1), ("fog", 5), ("contrast", 1), ("contrast", 5),
    ]  # fmt: skip
    errors = Result.load(tmp_path / "results" / "resnet20-random-weights-corruption-errors.npz")
    assert errors.corruption.tolist() == ["fog", "contrast"]
    stable = Result.load(tmp_path / "results" / "resnet20-random-weights-stability.npz")
    assert stable.frames.tolist() == [16]
    assert stable.provenance.images == 20
    said = capsys.readouterr().out
    assert "of the corrupted images are wrong" in said
    assert "with the severities of CIFAR-C; the images are not those of the stored set" in said


def test_the_same_image_is_corrupted_alike_whatever_the_batch():
    from visprism.examine import Inquiry, corrupted, load_models, prepare

    made = []
    for size in (3, 8):
        inquiry = Inquiry(data="shapes", limit=8, batch_size=size)
        (materials,) = prepare(
            load_models(["resnet20"]), inquiry, progress=lambda items, **_: items
        )
        shown = corrupted(materials, inquiry, "gaussian_noise", 3)
        made.append(np.concatenate([images.numpy() for images, _ in shown]))
    np.testing.assert_array_equal(*made)


# What a user can get wrong.


def test_a_corruption_that_is_not_there_is_told_before_the_work(tmp_path, capsys):
    said = refused(
        capsys, "robustness", "resnet20", *TINY, "--corruptions", "fogg", "--out", tmp_path
    )
    assert "unknown corruption 'fogg'; did you mean fog" in said
    said = refused(
        capsys, "robustness", "resnet20", *TINY, "--severities", "6", "--out", tmp_path
    )
    assert "severity is 6; wants 1 (mild) to 5 (severe)" in said
    said = refused(
        capsys, "robustness", "resnet20", *TINY, "--perturbations", "shake", "--corruptions",
        "none", "--out", tmp_path,
    )  # fmt: skip
    assert "unknown perturbation 'shake'" in said
    said = refused(
        capsys, "robustness", "resnet20", *TINY, "--corruptions", "none", "--out", tmp_path
    )
    assert "neither corruptions nor perturbations" in said


def test_data_without_labels_or_with_other_classes_is_refused(tmp_path, capsys):
    for name in ("plain/a.png", "many/x/a.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        Image.new("RGB", (40, 32), (90, 120, 50)).save(path)
    out = ["--out", tmp_path / "out"]
    said = refused(capsys, "evaluate", "resnet20", "--data", f"folder:{tmp_path}/plain", *out)
    assert "1 of 1 images have no label (target -1)" in said
    for i in range(11):
        path = tmp_path / "many" / f"c{i:02}" / "a.png"
        path.parent.mkdir()
        Image.new("RGB", (40, 32), (9 * i, 120, 50)).save(path)
    said = refused(capsys, "evaluate", "resnet20", "--data", f"folder:{tmp_path}/many", *out)
    assert "is none of the model's 10 classes (0 to 9); take data with the classes" in said


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--cutoff", "90", "'90' is no confidence from 0 up to but not 1"),
        ("--cutoff", "half", "'half' is no confidence"),
        ("--bins", "0", "'0' is not a whole number from 1 on"),
        ("--samples", "many", "'many' is not a whole number from 1 on"),
    ],
)
def test_an_option_that_makes_no_sense(option, value, sentence, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "resnet20", *TINY, option, value, "--out", str(tmp_path)])
    assert sentence in capsys.readouterr().err


def test_passes_of_a_model_without_dropout_are_refused(tmp_path, capsys):
    said = refused(capsys, "evaluate", "resnet20", *TINY, "--samples", "3", "--out", tmp_path)
    assert "has no dropout (nn.Dropout with p above 0)" in said
