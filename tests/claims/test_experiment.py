"""Declarations of the claims, and a miniature experiment from training to the page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import visprism as vp
from visprism import InputError, batches, load_model
from visprism.claims import measure
from visprism.claims.claim_networks import NETWORKS, SCALES, run_of
from visprism.claims.experiment import RawNumbers, run_claims
from visprism.claims.hypotheses import PRIMARY
from visprism.claims.report import declarations, effects_of, markdown_table
from visprism.cli import main
from visprism.estimates.questions import PAPER_CLAIMS

PROJECT = Path(__file__).parents[2]
SMALL = SCALES["small"]


def test_the_declared_hypotheses_are_those_of_the_table_in_the_docs():
    """Direction, quantity, margin and seeds of each row, fixed on 2026-11-25."""
    text = (PROJECT / "docs" / "claims.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- rules: begin -->(.*)<!-- rules: end -->", text, flags=re.DOTALL)
    assert block[1].strip() == declarations()
    assert {h.claim for h in PRIMARY.values()} == set(PAPER_CLAIMS)


@pytest.mark.parametrize("scale", ["small", "medium"])
def test_the_page_shows_the_verdicts_of_the_stored_numbers(scale):
    text = (PROJECT / "docs" / "claims.md").read_text(encoding="utf-8")
    results = PROJECT / "benchmarks" / "results" / "claims"
    effects = effects_of(RawNumbers.load(results / f"{scale}.json"))
    # The column of the real networks, which the first table has in addition, is left out.
    lines = {re.sub(r"(?<=nats \|) (?:[VE][^|]*| )\|$", "", line) for line in text.splitlines()}
    for comparison in ("primary", "equal training NLL", "secondary"):
        assert set(markdown_table(effects, comparison).splitlines()[2:]) <= lines


def test_a_recipe_with_fewer_images_has_as_many_epochs_or_updates():
    reference = NETWORKS["vit"].recipe(SMALL, 0)
    assert NETWORKS["vit 10%"].recipe(SMALL, 0) == reference
    assert NETWORKS["vit 10%, same updates"].recipe(SMALL, 0).epochs == 10 * reference.epochs


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    out = tmp_path_factory.mktemp("claims")
    lines = []
    raw = run_claims(["C14", "C15"], out=out, scale="test", report=lines.append)
    return out, raw, lines


def test_an_effect_is_the_mean_paired_difference(experiment):
    _, raw, _ = experiment
    effects = effects_of(raw)
    (row,) = np.flatnonzero(effects.row == "C14")
    patches, vit = (
        [run.quantities["test accuracy @2"] for run in raw.of_network(name).values()]
        for name in ("vit, small patches", "vit")
    )
    assert effects.effect[row] == pytest.approx(np.mean(np.subtract(patches, vit)))
    assert effects.seeds[row] == 2
    (primary,) = np.flatnonzero((effects.row == "C6a") & (effects.comparison == "primary"))
    assert (effects.verdict[primary], effects.note[primary]) == ("not run", "not measured")
    assert "C3" not in effects.row  # the scale has no such networks


def test_the_accuracy_is_that_of_the_stored_network(experiment):
    out, raw, _ = experiment
    run = run_of("vit", 1, SCALES["test"], "", out / "test")
    loaded = load_model(str(run.folder / "model.safetensors"))
    images = measure._test_images(run, 100)
    correct = [
        loaded.model(x).argmax(1) == y for x, y in batches(images, loaded.preprocessing, 50)
    ]
    (row,) = [r for r in raw.runs if r.name == run.name]
    accuracy = torch.cat(correct).double().mean()
    assert row.quantities["test accuracy @2"] == pytest.approx(accuracy)


def test_ape_is_the_arithmetic_mean_of_the_positive_leading_eigenvalues(experiment):
    out, _, _ = experiment
    run = run_of("vit", 1, SCALES["test"], "", out / "test")
    measured = measure._hessian(run, 2, vp.Run(seed=1), "NLL of clean images")
    loaded = load_model(str(run.folder / "model.safetensors"))
    training = batches(measure._training_images(run, 32), loaded.preprocessing, 16)
    spectrum = vp.hessian_spectrum(loaded.model, list(training), run=vp.Run(seed=1))
    leading = spectrum.value[spectrum.rank > 0]
    assert measured["APE, NLL of clean images"] == pytest.approx(leading[leading > 0].mean())
    assert measured["NEP, NLL of clean images"] == pytest.approx((leading < 0).mean())


def test_the_same_command_reads_what_is_done(experiment, monkeypatch):
    out, raw, _ = experiment
    monkeypatch.setattr("visprism.claims.claim_networks.train", None)
    monkeypatch.setattr("visprism.claims.measure._measurement", None)
    (out / "test" / "vit-seed1-old").mkdir(exist_ok=True)  # a copy
    again = run_claims(["C14", "C15"], out=out, scale="test")
    assert again.runs == raw.runs
    assert RawNumbers.load(out).runs == raw.runs


def test_changed_weights_are_measured_again(experiment):
    out, _, _ = experiment
    run = run_of("vit", 0, SCALES["test"], "", out / "test")
    stored = run.folder / "measured.json"
    before = stored.read_text()
    assert measure.stored_values(run)
    stored.write_text(json.dumps(json.loads(before) | {"identity": {}}))
    assert measure.stored_values(run) == {}
    stored.write_text(before)


@pytest.mark.parametrize(
    ("codes", "scale", "message"),
    [
        (["C99"], "small", "unknown claim 'C99'"),
        (["C9b"], "small", "unknown claim 'C9b'"),
        (["C5"], "test", "must be tested at another scale"),
        (["C9"], "large", "unknown scale 'large'"),
    ],
)
def test_unknown_claims_and_scales_are_refused(codes, scale, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run_claims(codes, out=tmp_path, scale=scale)


def test_other_data_in_the_same_folder_are_refused(experiment):
    out, _, _ = experiment
    with pytest.raises(InputError, match=r"data must be shapes\?size=16"):
        run_claims(["C14"], out=out, scale="test", data="shapes?size=16&seed=1")


@pytest.mark.slow
def test_processes_of_torchrun_share_the_seeds(experiment, tmp_path):
    _, raw, _ = experiment
    options = ["--scale", "test", "--seeds", "2", "--out", str(tmp_path)]
    launch = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run(
        [sys.executable, "-m", *launch, "-m", "visprism", "claims", "run", "C14", *options],
        check=True,
        capture_output=True,
        timeout=300,
    )
    shared = RawNumbers.load(tmp_path).of_network("vit, small patches")
    expected = raw.of_network("vit, small patches")
    assert {s: r.quantities for s, r in shared.items()} == {
        s: r.quantities for s, r in expected.items()
    }


def test_the_command_line_lists_and_reports(experiment, capsys):
    out, _, _ = experiment
    assert main(["claims"]) == 0
    listed = capsys.readouterr().out
    assert all(row in listed for row in PRIMARY)
    assert main(["claims", "report", "--out", str(out)]) == 0
    assert "not run" in capsys.readouterr().out
    assert (out / "claims.html").is_file()


def test_a_folder_without_numbers_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"must be the numbers that .* \(No such file"):
        RawNumbers.load(tmp_path)
    (tmp_path / "claims.json").write_text('{"runs": [{}]}')
    with pytest.raises(InputError, match=r"must be the numbers that .* missing required field"):
        RawNumbers.load(tmp_path)
