"""``visprism lesion``, ``noise``, ``attack``, ``shape-bias``: what they write and refuse."""

import numpy as np
import pytest
from PIL import Image

from visprism.anatomy import dissect
from visprism.cli import main
from visprism.data import batches, load_data
from visprism.measure.outputs import ablation
from visprism.models import load_model
from visprism.results.base import Result

TINY = ["--data", "shapes", "--limit", "20", "--batch-size", "8"]
VIT = "vit_pico_patch4_32"


def refused(capsys, *arguments):
    assert main([str(a) for a in arguments]) == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("visprism: ")
    return last


def read(folder, stem):
    return Result.load(next((folder / "results").glob(f"*-{stem}.npz")))


def test_lesions_are_those_of_the_library_with_attention_beside_them(tmp_path, capsys):
    options = [*TINY, "--pieces", "blocks,heads", "--together", "2", "--draws", "1"]
    assert main(["lesion", VIT, *options, "--out", str(tmp_path)]) == 0
    assert "accuracy falls most, by" in capsys.readouterr().out
    figures = {p.stem for p in (tmp_path / "figures").glob("*.png")}
    assert {"lesions", "lesions-nll", "attention-nmi"} <= figures
    assert any(name.startswith("lesions-and-attention-nmi-") for name in figures)
    found = read(tmp_path, "lesions")
    assert (found.removed == "several").sum() == 1
    assert found.resumed.all()
    loaded = load_model(VIT)
    shown = batches(load_data("shapes", limit=20, side=32), loaded.preprocessing, 20)
    anatomy = dissect(loaded.model, shown[0][0])
    alone = ablation(anatomy, shown, pieces=["blocks"])
    own = found.removed == "block"
    np.testing.assert_array_equal(found.block[own], alone.block)
    np.testing.assert_allclose(found.nll_rise[own], alone.nll_rise, atol=1e-5)
    assert "Ablations" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
def test_noise_of_the_bands_that_are_asked_for_and_a_map(tmp_path):
    options = [*TINY, "--frequencies", "0.2,0.8", "--map", "2", "--map-step", "2"]
    assert main(["noise", "resnet20", *options, "--out", str(tmp_path)]) == 0
    found = read(tmp_path, "frequency-noise")
    assert found.frequency.tolist() == [0.2, 0.8]
    np.testing.assert_allclose(found.rms, 0.1, rtol=1e-3)
    assert len(read(tmp_path, "fourier-sensitivity")) == 9
    assert found.provenance.command.startswith("visprism noise resnet20")


@pytest.mark.usefixtures("without_figures")
def test_the_papers_noise_by_its_name(tmp_path):
    options = [*TINY, "--protocol", "paper", "--out", str(tmp_path)]
    assert main(["noise", "resnet20", *options]) == 0
    found = read(tmp_path, "frequency-noise")
    assert found.provenance.protocol == "paper"
    assert found.rms[-1] > 2 * found.rms[0]


@pytest.mark.usefixtures("without_figures")
def test_each_attack_at_each_strength_in_each_band(tmp_path):
    options = [*TINY, "--attacks", "random,pgd", "--epsilon", "4/255,0.1", "--steps", "2"]
    options += ["--frequencies", "0.3,0.6", "--restarts", "2"]
    assert main(["attack", "resnet20", *options, "--out", str(tmp_path)]) == 0
    found = read(tmp_path, "adversarial")
    assert len(found) == 8
    assert found.epsilon[0] == 4 / 255
    assert found.frequency.tolist() == [0.3, 0.6] * 4
    assert found.restarts.tolist() == [1] * 4 + [2] * 4


@pytest.mark.usefixtures("without_figures")
def test_shape_or_texture_of_shapes_and_of_a_folder(tmp_path, capsys):
    for data in ("shapes?cues=conflict", f"cue_conflict:{tmp_path}/cues"):
        for i in range(10):
            path = tmp_path / "cues" / f"c{'abcdefghij'[i]}1-c{'bcdefghija'[i]}2.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (32, 32), (9 * i, 120, 50)).save(path)
        options = ["--data", data, "--limit", "10", "--out", str(tmp_path / "out")]
        assert main(["shape-bias", "resnet20", *options]) == 0
        found = read(tmp_path / "out", "shape-bias")
        assert found.images.tolist() == [1] * 10 + [10]
    assert "shape" in capsys.readouterr().out


# What a user can get wrong.


def test_what_can_be_wrong_ends_in_one_sentence(tmp_path, capsys):
    out = ["--out", tmp_path / "out"]
    said = refused(capsys, "lesion", "resnet20", *TINY, "--pieces", "stages", *out)
    assert "unknown piece 'stages'; wants some of units, blocks, heads" in said
    said = refused(capsys, "attack", "resnet20", *TINY, "--attacks", "carlini", *out)
    assert "unknown attack 'carlini'; wants fgsm, pgd, random" in said
    said = refused(capsys, "noise", "resnet20", *TINY, "--frequencies", "3", *out)
    assert "there is no band at 3.0" in said
    path = tmp_path / "plain" / "a.png"
    path.parent.mkdir()
    Image.new("RGB", (32, 32)).save(path)
    plain = ["--data", f"folder:{path.parent}"]
    said = refused(capsys, "lesion", "resnet20", *plain, *out)
    assert "1 of 1 images have no label (target -1)" in said
    said = refused(capsys, "shape-bias", "resnet20", *plain, *out)
    assert "does not say which texture each image has; take 'shapes?cues=conflict'" in said
    (tmp_path / "cat1-car2.png").write_bytes(path.read_bytes())
    said = refused(
        capsys,
        "shape-bias",
        "resnet20",
        "--data",
        f"cue_conflict:{tmp_path}",
        "--skip-bad",
        *out,
    )
    assert "are not named SHAPE-TEXTURE" in said
    path.unlink()
    said = refused(capsys, "shape-bias", "resnet20", "--data", f"cue_conflict:{tmp_path}", *out)
    assert "the model has 10 classes; wants a model of the 2 categories" in said


def test_a_list_that_holds_no_numbers(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["attack", "resnet20", *TINY, "--epsilon", "much", "--out", str(tmp_path)])
    assert "'much' is no list of numbers" in capsys.readouterr().err
