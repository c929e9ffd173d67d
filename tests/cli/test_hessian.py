"""``visprism hessian`` and ``density``: what they write, say and refuse."""

import pytest
from PIL import Image

from visprism.cli import main
from visprism.models import load_model, save_checkpoint
from visprism.results.base import Result
from visprism.results.hessian import HessianSpectrum, HessianTally
from visprism.results.loss import SpectralDensity, Trace

TINY = ["--data", "shapes", "--limit", "8", "--batch-size", "4", "-k", "1"]
MODEL = "vit_pico_patch4_32"
STEM = "vit_pico_patch4_32-random-weights"


def refused(capsys, *arguments):
    """The one sentence that a refused command prints."""
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error.strip().splitlines()[-1]


@pytest.mark.usefixtures("without_figures")
def test_hessian_writes_phases_and_both_objectives(tmp_path, capsys):
    files = []
    for seed in (1, 2):
        files.append(str(tmp_path / f"seed{seed}.safetensors"))
        save_checkpoint(
            load_model(MODEL, seed=seed).model, tmp_path / f"seed{seed}.safetensors"
        )
    out = tmp_path / "out"
    assert main(["hessian", MODEL, *TINY, "--phases", *files, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "seed1, NLL alone: " in said
    assert "seed2, NLL + L2 (weight decay 0.05): " in said
    spectrum = Result.load(out / "results" / f"{MODEL}-hessian-eigenvalues.npz")
    assert isinstance(spectrum, HessianSpectrum)
    assert len(spectrum) == 2 * 2 * 2 * 3  # phases, objectives, mini-batches, k and two ends
    assert spectrum.provenance.images == 8
    tally = Result.load(out / "results" / f"{MODEL}-hessian-tally.npz")
    assert isinstance(tally, HessianTally)
    assert tally.phase.tolist() == ["seed1", "seed1", "seed2", "seed2"]
    assert "Hessian eigenvalues" in (out / "report.html").read_text("utf-8")


@pytest.mark.usefixtures("without_figures")
def test_augmented_images_stand_beside_clean_ones(tmp_path, capsys):
    options = [*TINY, "--augment", "--weight-decay", "0", "--parameters", "kind:attention"]
    assert main(["hessian", MODEL, *options, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "clean, NLL alone" in said
    assert "augmented, NLL alone" in said
    assert "L2" not in said


@pytest.mark.usefixtures("without_figures")
def test_density_writes_density_trace_and_eigenvalues(tmp_path):
    options = [*TINY, "--steps", "3", "--runs", "1"]
    assert main(["density", MODEL, *options, "--out", str(tmp_path / "out")]) == 0
    results = tmp_path / "out" / "results"
    density = Result.load(results / f"{STEM}-density.npz")
    assert isinstance(density, SpectralDensity)
    assert len(density) == 3
    assert isinstance(Result.load(results / f"{STEM}-trace.npz"), Trace)
    assert (results / f"{STEM}-eigenvalues.csv").exists()


@pytest.mark.usefixtures("without_figures")
def test_phases_of_one_file_name_are_told_apart_by_their_folders(tmp_path, capsys):
    files = []
    for seed in (1, 2):
        (tmp_path / f"seed{seed}").mkdir()
        files.append(tmp_path / f"seed{seed}" / "m.safetensors")
        save_checkpoint(load_model(MODEL, seed=seed).model, files[-1])
    options = [*TINY, "--weight-decay", "0", "--phases", *map(str, files)]
    assert main(["hessian", MODEL, *options, "--out", str(tmp_path / "out")]) == 0
    tally = Result.load(tmp_path / "out" / "results" / f"{MODEL}-hessian-tally.npz")
    assert tally.phase.tolist() == [str(tmp_path / f"seed{n}" / "m") for n in (1, 2)]
    assert "random weights" not in capsys.readouterr().out


# What they refuse.
def test_refuses_other_classes_than_the_models(tmp_path, capsys):
    error = refused(capsys, "hessian", "timm:resnet10t", *TINY, "--out", str(tmp_path / "out"))
    assert "resnet10t" in error
    assert "has 1000 classes and" in error
    assert "num_classes=10" in error
    assert not (tmp_path / "out").exists()


def test_refuses_images_without_labels(tmp_path, capsys):
    for i in range(4):
        Image.new("RGB", (32, 32), (40 * i, 0, 0)).save(tmp_path / f"{i}.png")
    data = ["--data", f"folder:{tmp_path}", "--out", str(tmp_path / "out")]
    assert "has no labels, and the loss needs them" in refused(capsys, "hessian", MODEL, *data)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--parameters", "kind:conv"], "no parameter matches kind:conv; the model has the"),
        (["--weight-decay", "-1"], "weight_decay is -1.0; wants 0 or more"),
        (["--phases", "/nowhere.safetensors"], "/nowhere.safetensors"),
        (["-k", "999999999"], "k is 999999999; the operator has"),
    ],
)
def test_refuses_what_cannot_be(tmp_path, capsys, options, match):
    out = ["--out", str(tmp_path / "out")]
    assert match in refused(capsys, "hessian", MODEL, *TINY, *options, *out)
