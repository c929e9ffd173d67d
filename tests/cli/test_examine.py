"""Laws of the command line (src/visprism/cli, src/visprism/examine.py): what it writes."""

import csv
import re

import numpy as np
import pytest
from PIL import Image

from visprism.cli import main
from visprism.examine import Inquiry, examine, load_models
from visprism.models.author_formats import FORMATS
from visprism.results.base import Result

TINY = ["--data", "shapes", "--limit", "6", "--batch-size", "4"]
SMALL_VIT = "timm:vit_tiny_patch16_224?img_size=32&patch_size=8&depth=2&num_classes=10"


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    """What ``visprism examine`` writes about two models."""
    out = tmp_path_factory.mktemp("examined") / "new" / "folder"
    options = [*TINY, "--minutes", "0.02"]
    assert main(["examine", "resnet20", SMALL_VIT, *options, "--out", str(out)]) == 0
    return out


# What it writes.


def test_examine_writes_a_page_tables_and_figures_and_nothing_else(examined):
    assert {p.name for p in examined.iterdir()} == {"report.html", "results", "figures"}
    for stem in ("uncertainty", "hessian-tally", "landscape"):
        assert len(list(examined.glob(f"results/*-{stem}.npz"))) == 2
    stems = {"anatomy", "fourier", "high-frequency", "variance", "variance-tally"}
    stems |= {"receptive-field", "receptive-maps", "patch-filters"}
    stems |= {"cka", "block-structure"}
    for model in ("resnet20-random-weights", "vit_tiny_patch16_224-random-weights"):
        for stem in stems:
            assert (examined / "results" / f"{model}-{stem}.npz").exists()
            assert (examined / "results" / f"{model}-{stem}.csv").exists()
    for stem in stems:
        for suffix in ("png", "svg", "pdf"):
            assert (examined / "figures" / f"{stem}.{suffix}").stat().st_size > 1000


def test_the_page_shows_both_models(examined):
    page = (examined / "report.html").read_text(encoding="utf-8")
    assert "resnet20 (random weights)" in page
    assert "vit_tiny_patch16_224 (random weights)" in page


def test_a_result_knows_where_it_comes_from(examined):
    name = "vit_tiny_patch16_224-random-weights-fourier.npz"
    provenance = Result.load(examined / "results" / name).provenance
    assert provenance.model == f"{SMALL_VIT} (random weights)"
    assert provenance.images == 6
    assert provenance.image_shape == (3, 32, 32)
    assert provenance.command.startswith("visprism examine resnet20 'timm:vit")
    assert "shapes" in provenance.data


def test_the_table_is_the_result(examined):
    stem = examined / "results" / "resnet20-random-weights-variance"
    result = Result.load(stem.with_suffix(".npz"))
    with stem.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_array_equal([float(r["variance"]) for r in rows], result.variance)
    assert [r["block"] for r in rows] == result.block.tolist()


@pytest.mark.usefixtures("without_figures")
def test_the_same_command_gives_the_same_numbers(examined, tmp_path):
    command = ["fourier", SMALL_VIT, *TINY, "--out", str(tmp_path)]
    assert main(command) == 0
    name = "results/vit_tiny_patch16_224-random-weights-fourier.npz"
    again, first = Result.load(tmp_path / name), Result.load(examined / name)
    np.testing.assert_array_equal(again.log_amplitude, first.log_amplitude)


def test_fourier_and_variance_alone_write_their_own(tmp_path):
    assert main(["fourier", "resnet20", *TINY, "--out", f"{tmp_path}/f"]) == 0
    assert main(["variance", "resnet20", *TINY, "--out", f"{tmp_path}/v"]) == 0
    assert not list((tmp_path / "f").rglob("*variance*"))
    assert not list((tmp_path / "v").rglob("*fourier*"))
    assert not list(tmp_path.rglob("report.html"))


@pytest.mark.usefixtures("without_figures")
def test_cka_is_that_of_examine_and_two_models_are_compared_too(examined, tmp_path, capsys):
    assert main(["cka", "resnet20", SMALL_VIT, *TINY, "--out", str(tmp_path)]) == 0
    names = "resnet20-random-weights", "vit_tiny_patch16_224-random-weights"
    for name in names:
        path = f"results/{name}-cka.npz"
        alone, first = Result.load(tmp_path / path), Result.load(examined / path)
        np.testing.assert_array_equal(alone.cka, first.cka)
    stem = f"{names[0]}-and-{names[1]}-cka"
    compared = Result.load(tmp_path / "results" / f"{stem}.npz")
    assert len(compared) == 10 * 5
    assert compared.other_model == f"{SMALL_VIT} (random weights)"
    both = f"resnet20 (random weights) and {SMALL_VIT} (random weights)"
    assert compared.provenance.model == both
    assert (tmp_path / "results" / f"{stem}.csv").exists()
    assert (tmp_path / "figures" / f"{stem}.pdf").stat().st_size > 1000
    best = compared.cka.argmax()
    said = capsys.readouterr().out
    assert f"most alike are {compared.block[best]} and {compared.other[best]} (CKA " in said


@pytest.mark.usefixtures("without_figures")
def test_the_kernel_reaches_the_measurement(tmp_path):
    command = ["cka", "resnet20", *TINY, "--kernel", "rbf", "--out", str(tmp_path)]
    assert main(command) == 0
    (path,) = (tmp_path / "results").glob("*-cka.npz")
    result = Result.load(path)
    # Of six images in batches of four, the last two are too few to be compared.
    assert (result.kernel, result.batches, result.batch_size) == ("rbf", 1, 4)


@pytest.mark.usefixtures("without_figures")
def test_examine_without_enough_images_for_cka_says_so(tmp_path, capsys):
    options = [*TINY, "--batch-size", "3", "--minutes", "0"]
    assert main(["examine", "resnet20", *options, "--out", str(tmp_path)]) == 0
    assert not list(tmp_path.glob("results/*-hessian*"))  # no time for it
    said = capsys.readouterr().out
    assert "No similarity of blocks is shown: CKA compares images within a batch" in said
    assert "at least 4 in one, got 3; use --batch-size 4 or more" in said
    assert not list((tmp_path / "results").glob("*-cka.npz"))


@pytest.mark.usefixtures("without_figures")
def test_batches_mix_what_a_folder_keeps_apart(tmp_path):
    photographs = tmp_path / "photographs"
    for name, colour in (("a", (200, 0, 0)), ("b", (0, 0, 200))):
        (photographs / name).mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (32, 32), colour).save(photographs / name / f"{i}.png")
    data = ["--data", f"folder:{photographs}", "--batch-size", "8"]
    assert main(["cka", "resnet20", *data, "--out", str(tmp_path / "out")]) == 0
    (path,) = (tmp_path / "out" / "results").glob("*-cka.npz")
    # Batches of one class would hold images that are all the same.
    assert Result.load(path).defined.all()


@pytest.mark.usefixtures("without_figures")
def test_the_options_reach_the_measurement(tmp_path):
    options = ["--protocol", "paper", "--profile", "diagonal", "--size", "40", "--limit", "3"]
    assert main(["fourier", "resnet20", *TINY, *options, "--out", str(tmp_path)]) == 0
    (path,) = (tmp_path / "results").glob("*-fourier.npz")
    provenance = Result.load(path).provenance
    assert provenance.protocol == "paper"
    assert provenance.image_shape == (3, 40, 40)
    assert provenance.images == 3


@pytest.mark.usefixtures("without_figures")
def test_a_second_run_takes_the_place_of_the_first(tmp_path):
    for limit in ("2", "3"):
        command = ["variance", "resnet20", *TINY, "--limit", limit, "--out", str(tmp_path)]
        assert main(command) == 0
    (path,) = (tmp_path / "results").glob("*-variance.npz")
    assert Result.load(path).provenance.images == 3


@pytest.mark.usefixtures("without_figures")
def test_two_checkpoints_of_one_model_keep_their_own_names(tmp_path, capsys):
    twice = [SMALL_VIT, f"{SMALL_VIT}&class_token=False&global_pool=avg"]
    assert main(["variance", *twice, *TINY, "--out", str(tmp_path)]) == 0
    assert len(list((tmp_path / "results").glob("*-variance.npz"))) == 2
    assert "class_token=False" in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_it_says_what_was_found_and_where_it_lies(tmp_path, capsys):
    main(["variance", SMALL_VIT, *TINY, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert re.search(r"of 2 attention blocks (raise|reduce)s? the variance", printed.out)
    assert str(tmp_path) in printed.out
    assert "vit_tiny_patch16_224 (random weights), batches: 2 done in" in printed.err


def test_a_model_without_a_verdict_is_told_why(tmp_path, capsys):
    assert main(["fourier", "timm:resnet10t", *TINY, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "no block keeps its grid and changes" in said
    assert "Blocks that change nothing: 1 (layer1.0)" in said  # the others subsample


def test_shapes_are_drawn_as_large_as_the_model_wants_them(tmp_path):
    model = "timm:resnet10t?num_classes=7"  # 176 pixels, of a crop of 0.875
    main(["variance", model, *TINY, "--out", str(tmp_path / "a")])
    main(["variance", model, *TINY, "--data", "shapes?size=32", "--out", str(tmp_path / "b")])
    names = [
        Result.load(next(tmp_path.glob(f"{run}/results/*-variance.npz"))).provenance.data
        for run in "ab"
    ]
    assert names == ["shapes?size=201 (test)", "shapes?size=32 (test)"]


def test_a_grid_without_most_frequencies_is_told(tmp_path, capsys):
    options = [*TINY, "--size", "64x48", "--out", str(tmp_path)]
    assert main(["fourier", "resnet20", *options]) == 0
    assert "64x48, 32x24, 16x12 holds only the frequencies" in capsys.readouterr().out
    assert main(["fourier", "resnet20", *options, "--profile", "radial"]) == 0
    assert "holds only the frequencies" not in capsys.readouterr().out


# Receptive fields.


def test_receptive_fields_alone_write_their_own_on_16_images(tmp_path, capsys):
    command = ["receptive-field", SMALL_VIT, "--data", "shapes", "--out", str(tmp_path)]
    assert main(command) == 0
    stem = "vit_tiny_patch16_224-random-weights"
    found = Result.load(tmp_path / f"results/{stem}-receptive-field.npz")
    assert found.provenance.images == 16
    assert found.side_95[0] == pytest.approx(8, abs=1)  # the patch
    written = {p.stem for p in (tmp_path / "results").iterdir()}
    assert written == {
        f"{stem}-{end}" for end in ("anatomy", "receptive-field", "receptive-maps")
    }
    assert "look at" in capsys.readouterr().out


def test_an_examination_measures_receptive_fields_on_8_images(tmp_path):
    options = ["--data", "shapes", "--limit", "12", "--minutes", "0", "--out", str(tmp_path)]
    assert main(["examine", SMALL_VIT, *options]) == 0
    images = {
        stem: Result.load(next(tmp_path.glob(f"results/*-{stem}.npz"))).provenance.images
        for stem in ("fourier", "receptive-field")
    }
    assert images == {"fourier": 12, "receptive-field": 8}


DETACHED = """
import torch

class Frozen(torch.nn.Conv2d):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)

def build():
    layers = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 5)
    body = Frozen(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3)
    return torch.nn.Sequential(*body, *layers)
"""


@pytest.mark.usefixtures("without_figures")
def test_a_model_that_cannot_be_differentiated_keeps_its_other_analyses(tmp_path, capsys):
    (tmp_path / "net.py").write_text(DETACHED)
    model, size = f"{tmp_path}/net.py:build", ["--size", "16"]
    assert main(["receptive-field", model, *TINY, *size, "--out", f"{tmp_path}/a"]) == 2
    assert "block 'stem' has no receptive field" in capsys.readouterr().err
    assert main(["examine", model, *TINY, *size, "--out", f"{tmp_path}/b"]) == 0
    said = capsys.readouterr().out
    assert "Without receptive fields: block 'stem' has" in said
    passes = "uncertainty, hessian, density, landscape, robustness, lesion, noise, attack"
    assert f"Without {passes}: build has 5 classes and shapes" in said
    assert list(tmp_path.glob("b/results/*-variance.npz"))
    assert not list(tmp_path.glob("b/results/*receptive*"))


def test_attention_writes_maps_over_the_first_images(tmp_path, capsys):
    options = [*TINY, "--out", str(tmp_path), "--query", "class", "--maps", "1"]
    assert main(["attention", SMALL_VIT, *options]) == 0
    (maps,) = (tmp_path / "results").glob("attention-maps-*.npz")
    assert Result.load(maps).query == "class"
    assert (tmp_path / "figures" / f"{maps.stem}.svg").exists()
    assert "the distance in pixels of attention" in capsys.readouterr().out


# Weights alone.


def test_what_a_model_does_not_have_is_left_out_without_a_word(examined):
    found = {path.stem for path in (examined / "results").glob("*-positional-similarity.npz")}
    assert found == {"vit_tiny_patch16_224-random-weights-positional-similarity"}
    page = (examined / "report.html").read_text(encoding="utf-8")
    assert "Similarity of positions" in page
    assert "adds no table" not in page


def test_weights_come_from_no_images(examined):
    name = "resnet20-random-weights-patch-filters.npz"
    provenance = Result.load(examined / "results" / name).provenance
    assert (provenance.images, provenance.data) == (0, "")
    assert provenance.image_shape == (3, 32, 32)
    assert provenance.command.startswith("visprism examine resnet20")


def test_weights_can_be_asked_for_alone():
    inquiry = Inquiry(data="shapes", limit=2, analyses=("weights",))
    (found,) = examine(
        load_models(["vit_pico_patch4_32"]), inquiry, progress=lambda items, **_: items
    )
    assert [type(each).__name__ for each in found.results] == [
        "PatchFilters",
        "PositionalSimilarity",
    ]
    assert found.costs.provenance.image_shape == (3, 32, 32)


# Other commands.


def test_anatomy_prints_a_row_for_each_block(capsys):
    assert main(["anatomy", SMALL_VIT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["block", "kind", "stage", "output", "parameters", "MACs"]
    kinds = [line.split()[1] for line in lines[2:-1]]
    assert kinds == ["stem", "attention", "mlp", "attention", "mlp", "head"]
    assert lines[2].split()[3] == "192x4x4"


def test_anatomy_draws_when_asked(tmp_path, capsys):
    assert main(["anatomy", "resnet20", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "anatomy.svg").exists()
    assert (tmp_path / "results" / "resnet20-random-weights-anatomy.csv").exists()
    assert capsys.readouterr().out


def test_models_lists_the_zoo_and_searches_the_rest(capsys):
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    assert "resnet20" in listed
    assert all(f"{name}@FILE" in listed for name in FORMATS)  # of the authors' checkpoints
    assert main(["models", "deit3_small"]) == 0
    assert "timm:deit3_small_patch16_224\n" in capsys.readouterr().out
    assert main(["models", "DeiT3_small*"]) == 0  # without its prefix, too
    assert "timm:deit3_small_patch16_224\n" in capsys.readouterr().out
    assert main(["models", "torchvision:vit_*"]) == 0
    listed = capsys.readouterr().out.split()
    assert "torchvision:vit_b_16" in listed
    assert all(name.startswith("torchvision:vit_") for name in listed)


def test_models_lists_pretrained_weights_with_their_accuracy(capsys):
    assert main(["models", "--trained"]) == 0
    listed = capsys.readouterr().out.splitlines()
    for card in pretrained_cards().values():
        (line,) = [line for line in listed if line.startswith(f"{card.name} ")]
        interval = f"[{card.accuracy_low:.1%}, {card.accuracy_high:.1%}]"
        for stated in (f"{card.accuracy:.1%} {interval}", card.recipe, f"{card.parameters:,}"):
            assert f" {stated} " in line
    assert main(["models", "resnet20.shapes", "--trained"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_models_tells_what_those_that_fit_cost(capsys):
    assert main(["models", "resnet20", "--cost", "--batch-size", "2"]) == 0
    header, line, remark = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "image", "parameters", "MACs", "images/s"]
    name, size, parameters, macs, speed = line.split()
    assert (name, size, parameters) == ("resnet20", "32x32", "272,474")
    assert int(macs.replace(",", "")) == pytest.approx(41e6, rel=0.02)  # as published: 41 M
    assert float(speed) > 0
    import torch

    threads = torch.get_num_threads()
    words = f"{threads} threads" if threads > 1 else "1 thread of"
    assert "batches of 2 in fp32" in remark
    assert words in remark


def test_data_lists_what_can_be_named(capsys):
    assert main(["data"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("shapes", "cifar10", "folder:DIR", "parquet:FILE"))


# On real images.


@pytest.mark.usefixtures("without_figures")
def test_photographs_through_a_timm_model(real_images, tmp_path):
    folder = f"folder:{real_images}/imagenet-sample/val"
    options = ["--data", folder, "--limit", "4", "--size", "64", "--minutes", "0.02"]
    assert main(["examine", "timm:resnet18", *options, "--out", str(tmp_path)]) == 0
    assert list(tmp_path.glob("results/*-hessian-tally.npz"))  # its 1,000 classes are those
    (path,) = (tmp_path / "results").glob("*-fourier.npz")
    assert Result.load(path).provenance.image_shape == (3, 64, 64)


def test_cifar_from_parquet(real_images, tmp_path):
    data = ["--data", f"parquet:{real_images}/cifar10", "--split", "test", "--limit", "4"]
    assert main(["variance", "resnet20", *data, "--out", str(tmp_path)]) == 0
    (path,) = (tmp_path / "results").glob("*-variance.npz")
    assert Result.load(path).provenance.images == 4
