"""Means by kind of block: closed forms, and intervals that cover a known truth."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from visprism import Block, Provenance
from visprism.anatomy import Ablation
from visprism.measure.outputs.ablation_contrasts import summarize_by_kind
from visprism.results.ablation import Ablations

PROVENANCE = Provenance(images=4, split="test")


def part(kind, stage=1, ablated="block"):
    """An ablation of which only block and experiment count."""
    block = Block("b", kind, stage, 0.5, subsampling=False, shape=(1, 1, 1), layout=None)
    return Ablation((block,), ablated, nullcontext, 0, 0, torch.clone, nullcontext)


def summary(parts, drops):
    drops = np.array(drops, dtype=float)
    return summarize_by_kind(parts, drops, np.arange(len(drops)), PROVENANCE)


def test_means_and_differences_by_hand():
    parts = [part("attention"), part("mlp"), part("attention"), part("mlp")]
    kinds, images = summary(parts, [[1, 0, 1, 0], [0, 0, 1, 0], [0, -1, 1, 0], [0, 0, 0, 1]])
    assert kinds.comparison.tolist() == [
        "attention", "mlp", "attention minus mlp", "attention, late minus early",
        "mlp, late minus early",
    ]  # fmt: skip
    assert kinds.drop.tolist() == [0.5, 0.0, 0.5, 0.5, 0.5]
    assert kinds.num_blocks.tolist() == [2, 2, 4, 2, 2]
    name = "mean accuracy drop, one whole block replaced by the identity, attention minus mlp"
    assert images.values_of(name)[1].tolist() == [1.0, 0.5, 1.0, -0.5]


def test_a_block_and_a_convolution_are_never_averaged_together():
    parts = [part("conv"), part("conv", ablated="convolution"), part("attention")]
    kinds, _ = summary(parts, [[0, 1, 0]] * 4)
    rows = dict(zip(zip(kinds.ablated.tolist(), kinds.comparison.tolist(), strict=True),
                    kinds.drop.tolist(), strict=True))  # fmt: skip
    assert rows == {
        ("block", "conv"): 0.0,
        ("block", "attention"): 0.0,
        ("block", "conv minus attention"): 0.0,
        ("convolution", "conv"): 1.0,
    }


def test_early_and_late_are_halves_of_each_stage():
    parts = [part("conv", stage) for stage in (1, 1, 1, 2, 2, 3)]
    kinds, _ = summary(parts, [[0.0, 9.0, 1.0, 0.0, 3.0, 9.0]] * 4)
    at = kinds.comparison.tolist().index("conv, late minus early")
    assert kinds.drop[at] == 2.0  # (1 + 3) / 2 - 0: the middle and the single one in none
    assert kinds.num_blocks[at] == 4
    stages = [f"conv, late minus early, stage {stage}" for stage in (1, 2)]
    assert kinds.comparison[at + 1 :].tolist() == stages
    assert kinds.drop[at + 1 :].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("stages", "verdict"),
    [((-1, -1), "supports"), ((1, 1), "contradicts"), ((1, -3), "undecided")],
)
def test_claim_c10_is_undecided_where_stages_disagree(stages, verdict):
    """Early convolutions cost more: late minus early is below 0."""
    parts = [part("conv", stage) for stage in (1, 1, 2, 2)]
    drops = np.zeros((60, 4))
    drops[:, [1, 3]] = np.random.default_rng(0).normal(stages, 0.1, size=(60, 2))
    kinds, _ = summarize_by_kind(parts, drops, np.arange(60), Provenance(images=60))
    answers = {a.subject: a for a in kinds.answers()}
    assert answers["conv, late minus early"].verdict == verdict
    disagree = verdict == "undecided"
    assert any("stages disagree" in f.text for f in kinds.findings()) == disagree


@pytest.mark.parametrize(("early", "late"), [(0.3, 0.1), (0.05, 0.4)])
def test_intervals_cover_the_truth_of_a_simulation(early, late):
    # Images differ in difficulty, so that the drops of the blocks of one image are dependent.
    generator = np.random.default_rng(0)
    parts = [part("conv") for _ in range(4)] + [part("mlp")]
    probabilities = np.array([early, early, late, late, 0.2])
    truth = {
        "conv": (early + late) / 2,
        "conv minus mlp": (early + late) / 2 - 0.2,
        "conv, late minus early": late - early,
    }
    covered, trials = dict.fromkeys(truth, 0), 400
    for _ in range(trials):
        difficulty = generator.choice([0.5, 1.5], size=(200, 1))
        drops = generator.random((200, 5)) < difficulty * probabilities
        kinds, _ = summary(parts, drops)
        for name, value in truth.items():
            at = kinds.comparison.tolist().index(name)
            covered[name] += kinds.drop_low[at] <= value <= kinds.drop_high[at]
    for name, number in covered.items():
        assert 0.92 <= number / trials <= 0.98, name


def ablations(**columns):
    n = len(columns["drop"])
    rest = {
        "block": np.array([f"b{i}" for i in range(n)]),
        "kind": np.full(n, "conv"),
        "stage": np.ones(n, int),
        "depth": np.linspace(0, 1, n),
        "subsampling": np.zeros(n, bool),
        "num_blocks": np.ones(n, int),
        "accuracy": 0.9 - np.array(columns["drop"]),
        **{name: np.zeros(n) for name in ("nll", "nll_rise", "nll_rise_error")},
        "partial": np.ones(n, bool),
        "baseline_accuracy": 0.9,
        "provenance": Provenance(images=200, split="test"),
    }
    return Ablations(**rest | {k: np.array(v) for k, v in columns.items()})


def test_each_experiment_has_its_own_sentence_and_its_own_maximum():
    result = ablations(
        ablated=["block", "block", "convolution", "head 1"],
        drop=[0.1, 0.2, 0.8, 0.01],
        drop_low=[0.05, 0.15, 0.7, -0.01],
        drop_high=[0.15, 0.25, 0.9, 0.03],
    )
    assert [f.text for f in result.findings()] == [
        "one whole block replaced by the identity: accuracy drops significantly from 90.0% "
        "in each of 2 ablations (200 test images, not adjusted for multiple comparisons); "
        "largest drop of 2: b1 (conv), 20.0 percentage points [15.0, 25.0], interval not "
        "adjusted for this selection",
        "one convolution inside a block replaced by the identity: accuracy drops significantly "
        "from 90.0% in 1 of 1 ablations (200 test images); largest drop of 1: b2, convolution "
        "(conv), 80.0 percentage points [70.0, 90.0]",
        "one attention head replaced by zero: accuracy drops significantly from 90.0% in 0 of "
        "1 ablations (200 test images); largest drop of 1: b3, head 1 (conv), 1.0 percentage "
        "points [-1.0, 3.0]",
    ]
    assert [a.quantity for a in result.answers()] == [
        "largest accuracy drop, one whole block replaced by the identity",
        "largest accuracy drop, one convolution inside a block replaced by the identity",
    ]


def test_no_maximum_is_named_where_no_drop_is_significant():
    result = ablations(
        ablated=["block"] * 3, drop=[0.0] * 3, drop_low=[-0.02] * 3, drop_high=[0.02] * 3
    )
    (finding,) = result.findings()
    assert finding.text.endswith(
        "in 0 of 3 ablations (200 test images, not adjusted for multiple comparisons)"
    )


@pytest.mark.parametrize(
    ("kind", "interval", "verdict"),
    [
        ("conv", (-0.3, -0.1), "supports"),
        ("conv", (0.1, 0.3), "contradicts"),
        ("attention", (0.1, 0.3), "supports"),
        ("attention", (-0.1, 0.3), "undecided"),
    ],
)
def test_claim_c10_is_about_early_convolutions_and_late_attentions(kind, interval, verdict):
    low, high = interval
    parts = [part(kind), part(kind)]
    kinds, _ = summary(parts, [[0, 1]] * 4)
    at = kinds.comparison.tolist().index(f"{kind}, late minus early")
    for name, value in (("drop_low", low), ("drop_high", high)):
        getattr(kinds, name)[at] = value
    answer = kinds.answers()[at]
    assert (answer.claim, answer.verdict) == ("C10", verdict)
    assert all(not a.claim for i, a in enumerate(kinds.answers()) if i != at)
