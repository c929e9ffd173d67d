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
from visprism import InputError, batches, load_data, load_model
from visprism.claims.arms import ARMS
from visprism.claims.experiment import MeasuredRun, RawNumbers, claims_of, run_claims
from visprism.claims.paper import CLAIMS
from visprism.claims.quantities import QUANTITIES
from visprism.claims.report import (
    learning_curves,
    markdown_effects,
    markdown_table,
    page,
    sections_of,
)
from visprism.claims.runs import run_of, runs_of
from visprism.claims.scales import SCALES
from visprism.claims.verdicts import DEPENDS, effects_of, trained_runs, verdicts_of
from visprism.cli import main
from visprism.cli.claims import SCALES as LISTED

PROJECT = Path(__file__).parents[2]
SMALL = SCALES["small"]


def test_the_docs_state_each_claim_in_the_same_words():
    text = (PROJECT / "docs" / "findings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (C\d+) \| (.+?) \| (.+?) \|$", text, flags=re.MULTILINE)
    assert rows == [(c.code, c.statement, c.source) for c in CLAIMS.values()]


def test_every_arm_and_quantity_belongs_to_a_claim():
    assert {arm for claim in CLAIMS.values() for arm in claim.arms} == set(ARMS)
    used = {h.quantity for claim in CLAIMS.values() for h in claim.hypotheses}
    assert used <= set(QUANTITIES)
    measured = {q.measurement.name for q in QUANTITIES.values() if q.key in used}
    assert measured == {q.measurement.name for q in QUANTITIES.values()}


def test_the_command_line_lists_the_scales():
    assert set(LISTED) == set(SCALES)


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_a_scale_can_decide_every_claim(scale):
    assert all(claim.testable(SCALES[scale]) for claim in CLAIMS.values())


def test_the_networks_of_the_scales_can_be_built():
    for network in SMALL.networks.values():
        assert load_model(network.spec).model is not None


def test_a_recipe_with_fewer_images_has_as_many_epochs_or_updates():
    reference = ARMS["vit"].recipe(SMALL, 0)
    assert ARMS["vit 10%"].recipe(SMALL, 0) == reference
    assert ARMS["vit 10%, same updates"].recipe(SMALL, 0).epochs == 10 * reference.epochs


def test_arms_with_the_same_training_share_their_runs(tmp_path):
    weak = run_of("cnn, weak augmentation", 0, SMALL, "", tmp_path)
    assert weak == run_of("cnn", 0, SMALL, "", tmp_path)
    strong = run_of("cnn, strong augmentation", 0, SMALL, "", tmp_path)
    assert strong.folder != weak.folder
    names = [run.name for run in runs_of(ARMS, SMALL, "", tmp_path, range(2))]
    assert len(names) == len(set(names))
    assert names[0] == "cnn-seed0"


# A miniature experiment.


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    out = tmp_path_factory.mktemp("claims")
    lines = []
    raw = run_claims(["C14"], out=out, scale="test", report=lines.append)
    return out, raw, lines


def test_an_experiment_ends_in_a_verdict_with_effect_and_interval(experiment):
    _, raw, lines = experiment
    assert len(lines) == len(raw.runs) == 4
    (verdict,) = verdicts_of(raw)
    assert verdict.claim.code == "C14"
    effects = effects_of([verdict], raw)
    patches, vit = (raw.values(arm, "test accuracy") for arm in ("vit, small patches", "vit"))
    assert effects.effect[0] == pytest.approx(np.mean(patches) - np.mean(vit))
    assert effects.low[0] < effects.effect[0] < effects.high[0]
    assert effects.seeds[0] == effects.control_seeds[0] == 2
    runs = trained_runs(raw)
    assert (runs.images == 250).all()
    assert (runs.low <= runs.accuracy).all()


def test_a_quantity_is_that_of_the_stored_network(experiment):
    """Accuracy, against plain passes over the images of such a study."""
    out, raw, _ = experiment
    scale = SCALES["test"]
    training = run_of("vit", 1, scale, "", out / "test")
    weights = str(training.folder / "model.safetensors")
    study = vp.examine(
        weights,
        scale.data,
        analyses=["calibration"],
        images=vp.DataOptions(limit=scale.test_images),
        run=vp.Run(seed=1),
    )
    images = load_data(scale.data, split="test").subset(study.positions)
    loaded = load_model(weights)
    correct = [
        loaded.model(x).argmax(1) == y for x, y in batches(images, loaded.preprocessing, 50)
    ]
    (row,) = [r for r in raw.runs if r.name == training.name]
    assert row.quantities["test accuracy"] == pytest.approx(torch.cat(correct).double().mean())


def test_the_same_command_reads_what_is_done(experiment, monkeypatch):
    out, raw, _ = experiment
    monkeypatch.setattr("visprism.claims.runs.train", None)
    monkeypatch.setattr("visprism.claims.measuring.examine", None)
    again = run_claims(["C14"], out=out, scale="test")
    assert again.runs == raw.runs
    assert RawNumbers.load(out).runs == raw.runs


def test_changed_weights_are_measured_again(experiment, monkeypatch):
    out, _, _ = experiment
    run = run_of("vit", 0, SCALES["test"], "", out / "test")
    stored = run.folder / "quantities.json"
    before = stored.read_text()
    changed = json.loads(before) | {"identity": {}}
    stored.write_text(json.dumps(changed))
    calls = []
    monkeypatch.setattr("visprism.claims.measuring._measured", lambda *a: calls.append(a) or {})
    with pytest.raises(KeyError):
        run_claims(["C14"], out=out, scale="test")
    assert calls
    stored.write_text(before)


def test_the_page_shows_verdicts_effects_and_runs(experiment):
    _, raw, _ = experiment
    html = page(raw)
    (section,) = [s for s in sections_of(raw) if s.effects is not None]
    assert section.effects.effect_text(0) in html
    assert all(run.name in html for run in raw.runs)
    assert html.count("not tested") == 15
    row = next(line for line in markdown_table(raw).splitlines() if "| C14 |" in line)
    assert section.verdict in row
    effects = markdown_effects(section.effects).splitlines()[2:]
    assert len(effects) == len(section.effects)
    for line, reason in zip(effects, section.effects.reason, strict=True):
        assert line.endswith(f"{reason} |")


def test_learning_curves_are_those_of_the_runs(experiment):
    _, raw, _ = experiment
    axes = {ax.get_title(): ax for ax in learning_curves(raw).axes if ax.get_title()}
    assert set(axes) == {run.arms[0] for run in raw.runs}
    for arm, ax in axes.items():
        runs = [run for run in raw.runs if run.arms[0] == arm]
        for run, line in zip(runs, ax.lines, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), run.curve["epoch"])
            np.testing.assert_array_equal(line.get_ydata(), run.curve["test accuracy"])


def test_protocols_that_disagree_are_named():
    values = {"vit": [1.0, 1.1, 0.9], "cnn": [2.0, 2.1, 1.9]}
    raw = _raw("C15", values, swapped="increase of NLL + L2 on a grid")
    (verdict,) = verdicts_of(raw)
    assert verdict.verdict == DEPENDS
    assert set(verdict.by_protocol.values()) == {"supported", "contradicted"}


def _raw(code, values, swapped):
    """Raw numbers of a claim; for the quantity `swapped` the two arms are exchanged."""
    (claim,) = claims_of([code], SMALL)
    first, other = values
    runs = []
    for arm, opposite in ((first, other), (other, first)):
        for seed, (value, exchanged) in enumerate(
            zip(values[arm], values[opposite], strict=True)
        ):
            quantities = {
                h.quantity: exchanged if h.quantity == swapped else value
                for h in claim.hypotheses
            }
            runs.append(_run(arm, seed, quantities))
    return RawNumbers(scale="small", data="", runs=tuple(runs), origin={})


def _run(arm, seed, quantities):
    return MeasuredRun(
        f"{arm}-{seed}", (arm,), seed, 1, 1, 1.0, (0.5, 0.4, 0.6), {}, quantities
    )


@pytest.mark.parametrize(
    ("codes", "scale", "message"),
    [
        (["C99"], "small", "unknown claim 'C99'"),
        (["C9"], "test", "must be tested at another scale"),
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
def test_a_claim_keeps_the_numbers_of_another(experiment):
    out, raw, _ = experiment
    later = run_claims(["C13"], out=out, scale="test", seeds=1)
    codes = {v.claim.code for v in verdicts_of(later)}
    assert codes == {"C13", "C14"}
    assert {r.name for r in raw.runs} < {r.name for r in later.runs}


@pytest.mark.slow
def test_processes_of_torchrun_share_the_runs(experiment, tmp_path):
    _, raw, _ = experiment
    options = ["--scale", "test", "--seeds", "2", "--out", str(tmp_path)]
    launch = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run(
        [sys.executable, "-m", *launch, "-m", "visprism", "claims", "run", "C14", *options],
        check=True,
        capture_output=True,
        timeout=300,
    )
    shared = RawNumbers.load(tmp_path)
    assert [(r.name, r.quantities) for r in shared.runs] == [
        (r.name, r.quantities) for r in raw.runs
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--seeds", "2"], "--seeds must not be given to `visprism claims list`"),
        (["list", "--out", "x"], "--out must not be given"),
        (["report", "C6"], "CLAIM must not be given to `visprism claims report`"),
        (["report", "--scale", "test"], "--scale must not be given"),
        (["run", "C14", "--data", "nowhere"], "nowhere"),
    ],
)
def test_options_of_other_actions_and_unknown_data_are_refused(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["claims", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_a_folder_without_numbers_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(InputError, match="must have been run"):
        RawNumbers.load(tmp_path)
    (tmp_path / "claims.json").write_text('{"runs": [{}]}')
    with pytest.raises(InputError, match="got something else"):
        RawNumbers.load(tmp_path)
