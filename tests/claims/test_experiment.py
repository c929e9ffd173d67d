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
from experiments.claims import measure
from experiments.claims.__main__ import main
from experiments.claims.experiment import RawNumbers, run_claims
from experiments.claims.hypotheses import PRIMARY
from experiments.claims.networks import NETWORKS, SCALES, run_of
from experiments.claims.report import HEADER, declarations, effects_of, markdown_table
from experiments.claims.statements import STATEMENTS
from visprism import InputError, batches, load_model

PROJECT = Path(__file__).parents[2]
SMALL = SCALES["small"]


def test_the_declared_hypotheses_are_those_of_the_table_in_the_docs():
    """Direction, quantity, margin and seeds of each row, fixed on 2026-11-25."""
    text = (PROJECT / "docs" / "claims.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- rules: begin -->(.*)<!-- rules: end -->", text, flags=re.DOTALL)
    assert block[1].strip() == declarations()
    assert {h.claim for h in PRIMARY.values()} == set(STATEMENTS)


@pytest.mark.parametrize("scale", ["small", "medium"])
def test_the_page_shows_the_verdicts_of_the_stored_numbers(scale):
    text = (PROJECT / "docs" / "claims.md").read_text(encoding="utf-8")
    results = PROJECT / "benchmarks" / "results" / "claims"
    effects = effects_of(RawNumbers.load(results / f"{scale}.json"))
    # Columns of other scales and networks, which the first table has in addition, are left out.
    width = len(HEADER) + 1
    lines = {"|".join(line.split("|")[:width]) + "|" for line in text.splitlines()}
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
    monkeypatch.setattr(vp, "train", None)
    monkeypatch.setattr(measure, "MEASUREMENTS", {})
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
        (["C99"], "small", "row must be one of C1, .*, got 'C99'"),
        (["C9b"], "small", "row must be one of C1, .*, got 'C9b'"),
        (["C5"], "test", "must be tested at another scale"),
        (["C9"], "large", "scale must be one of small, .*, got 'large'"),
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
        [
            sys.executable,
            "-m",
            *launch,
            "-m",
            "experiments.claims",
            "run",
            "--row",
            "C14",
            *options,
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    shared = RawNumbers.load(tmp_path).of_network("vit, small patches")
    expected = raw.of_network("vit, small patches")
    assert shared.keys() == expected.keys()
    for seed, run in shared.items():  # attention is fused in this process only
        assert run.quantities == pytest.approx(expected[seed].quantities, rel=1e-6)


def test_the_command_line_lists_and_reports(experiment, capsys):
    out, _, _ = experiment
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(row in listed for row in PRIMARY)
    assert main(["report", "--out", str(out)]) == 0
    assert "not run" in capsys.readouterr().out
    assert (out / "claims.html").is_file()


def test_a_folder_without_numbers_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"must be the numbers that .* \(No such file"):
        RawNumbers.load(tmp_path)
    (tmp_path / "claims.json").write_text('{"runs": [{}]}')
    with pytest.raises(InputError, match=r"must be the numbers that .* missing required field"):
        RawNumbers.load(tmp_path)


OWN_MODEL = """
from torch import nn

def build():
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10))
"""


def test_a_users_architecture_takes_the_place_of_the_networks(tmp_path, capsys):
    """Rows that compare two architectures cannot be run on one."""
    build = tmp_path / "my.py"
    build.write_text(OWN_MODEL)
    options = ["--model", f"{build}:build", "--scale", "test", "--out", str(tmp_path / "out")]
    assert main(["--row", "C1", *options]) == 2
    assert "networks of one architecture" in capsys.readouterr().err
    assert main(["--row", "C6b", "--row", "C6a", *options]) == 0
    effects = effects_of(RawNumbers.load(tmp_path / "out"))
    rows = {
        row: (str(effects.hypothesis[i]), effects.seeds[i]) for i, row in enumerate(effects.row)
    }
    assert rows["C6b"] == ("model higher than 0", 2)
    assert rows["C6a"] == ("model lower than 0", 0)
    assert "the networks have none" in effects.note[effects.row.tolist().index("C6a")]
    assert "C1" not in rows
    assert f"{build}:build" in (tmp_path / "out" / "claims.html").read_text()


def test_the_experiment_uses_public_names_only():
    for path in (PROJECT / "experiments").rglob("*.py"):
        assert not re.findall(
            r"^\s*(?:from|import) visprism(?!  ?as vp$).*", path.read_text(), flags=re.M
        )
