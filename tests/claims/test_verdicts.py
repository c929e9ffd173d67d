"""The rules of decision on values whose truth is known, and by a second implementation."""

import json
from dataclasses import asdict, replace
from math import log
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments.claims import by_hand
from experiments.claims.effects import AFTER_ADJUSTMENT
from experiments.claims.experiment import MeasuredRun, RawNumbers
from experiments.claims.hypotheses import FIT, PRIMARY, WARM_UP
from experiments.claims.measure import equal_fit
from experiments.claims.networks import NETWORKS
from experiments.claims.report import effects_of
from experiments.claims.verdicts import (
    CANT_TELL,
    NO_EFFECT,
    NOT_RUN,
    OPPOSITE,
    PRELIMINARY,
    REPRODUCED,
    SeedEffects,
    decide,
    decide_all,
    estimate,
    seeds_needed,
    unstable,
)

PROJECT = Path(__file__).parents[2]
CLEAR = np.array([1.0, 1.1, 0.9, 1.05, 0.95])


@pytest.mark.parametrize(
    ("effects", "sign", "verdict"),
    [
        (CLEAR, 1, REPRODUCED),
        (CLEAR, -1, OPPOSITE),
        (-CLEAR, -1, REPRODUCED),
        ((CLEAR - 1) / 10, 1, NO_EFFECT),
        (20 * (CLEAR - 1), 1, CANT_TELL),
        (CLEAR[:4], 1, PRELIMINARY),
        (CLEAR[:1], 1, NOT_RUN),
        (np.ones(5), 1, CANT_TELL),
    ],
)
def test_each_verdict(effects, sign, verdict):
    decision = decide(effects, 0.5, sign=sign)
    assert decision.verdict == verdict
    assert (decision.seeds_needed != 0) == (verdict == CANT_TELL)


def test_intervals_and_p_values_are_those_of_scipy():
    values = np.random.default_rng(0).normal(0.5, size=6)
    expected = stats.ttest_1samp(values, 0)
    estimated = estimate(values, 0.9)
    interval = expected.confidence_interval(0.9)
    assert (estimated.low, estimated.high) == pytest.approx((interval.low, interval.high))
    assert estimated.p == pytest.approx(expected.pvalue)


def test_the_stated_seeds_are_the_fewest_with_a_power_of_80_percent():
    n = seeds_needed(0.7, 0.05, 5)
    power = [stats.nct.sf(stats.t.isf(0.025, m - 1), m - 1, 0.7 * m**0.5) for m in (n - 1, n)]
    assert power[0] < 0.8 <= power[1]
    assert seeds_needed(0.01, 0.05, 5) == -1
    assert seeds_needed(100.0, 0.05, 5) == 6


def test_an_interval_excludes_0_if_and_only_if_holm_rejects():
    rng = np.random.default_rng(1)
    for _ in range(20):
        values = rng.normal(rng.uniform(0, 4, (6, 1)), size=(6, 5))
        tested = {str(i): SeedEffects((v,), (1,), 1.0) for i, v in enumerate(values)}
        p = np.sort(stats.ttest_1samp(values, 0, axis=1).pvalue)
        passed = p <= 0.05 / np.arange(8, 2, -1)  # a family of 8, of which 2 are not run
        rejections = int(np.argmin([*passed, False]))
        decisions = decide_all(tested, holm=8).values()
        assert sum(d.low > 0 or d.high < 0 for d in decisions) == rejections


def test_the_weaker_of_two_comparisons_decides():
    both = SeedEffects((CLEAR, -CLEAR), (1, -1), 0.1)
    assert decide_all({"C16": both})["C16"].verdict == REPRODUCED
    same_order = SeedEffects((-CLEAR, -CLEAR), (1, -1), 0.1)
    assert decide_all({"C16": same_order})["C16"].verdict == OPPOSITE


def test_equal_fit_is_the_pair_of_lowest_or_highest_training_nll():
    one, other = {1: 2.0, 2: 1.5, 3: 1.0, 4: 0.7}, {1: 1.9, 2: 1.48, 3: 0.98}
    assert equal_fit(one, other, early=False) == (3, 3)
    assert equal_fit(one, other, early=True) == (2, 2)  # 2.0 and 1.9 differ by more than 5%
    assert equal_fit({1: 2.0}, {1: 1.0}, early=True) is None


def raw_numbers(rng, effect, seeds=5):
    """Raw numbers in which each hypothesis has a random effect of up to `effect` margins."""
    runs = []
    for name in NETWORKS:
        for seed in range(3, 3 + seeds):
            values = {f"{FIT} @{epoch}": 2.0 / epoch for epoch in (1, 20)}
            values |= {f"{q} @20": 1.0 for q in ("test accuracy", "NLL of training images")}
            runs.append(MeasuredRun(f"{name}-{seed}", (name,), seed, 1, 20, 1, 1.0, (0.5,) * 3,
                                    {}, values))  # fmt: skip
    raw = RawNumbers("small", "", tuple(runs), {})
    for h in PRIMARY.values():
        size = effect * h.margin * rng.uniform(-1, 1)
        epoch = 1 if h.phase == WARM_UP else 20
        for quantity in h.quantities:
            for name in h.networks:
                for seed, run in raw.of_network(name).items():
                    mean = size * (name == h.network) + (0.0 if not h.control else 0.1 * seed)
                    value = mean + h.margin * rng.uniform(0.1, 0.6) * rng.normal()
                    run.quantities[f"{quantity} @{epoch}"] = (
                        np.exp(value) if h.logarithm else value
                    )
    return raw


def verdicts_of(effects, comparison="primary"):
    rows = effects.comparison == comparison
    return dict(zip(effects.row[rows].tolist(), effects.verdict[rows].tolist(), strict=True))


def test_a_second_implementation_gives_the_same_verdicts():
    rng, seen = np.random.default_rng(2), set()
    studies = [("small", 0, 5), ("small", 2, 5), ("small", 10, 5), ("small", 40, 5)]
    studies += [
        ("small", 40, 4),
        ("small", 10, 8),
        ("medium", 2, 3),
        ("medium", 10, 5),
        ("small", 2, 1),
    ]
    for scale, effect, seeds in studies:
        raw = replace(raw_numbers(rng, effect, seeds), scale=scale)
        verdicts = verdicts_of(effects_of(raw))
        again, equal = by_hand.verdicts(json.loads(json.dumps(asdict(raw))))
        assert {row: again[row] for row in verdicts} == verdicts
        assert equal == verdicts_of(effects_of(raw), "equal training NLL")
        assert len(verdicts) == (len(PRIMARY) if scale == "small" else 17)
        seen |= set(verdicts.values())
    adjusted = CANT_TELL + AFTER_ADJUSTMENT
    assert seen == {REPRODUCED, OPPOSITE, NO_EFFECT, CANT_TELL, adjusted, PRELIMINARY, NOT_RUN}


@pytest.mark.parametrize("scale", ["small", "medium"])
def test_every_cell_of_the_page_follows_from_the_raw_numbers(scale):
    stored = PROJECT / "benchmarks" / "results" / "claims" / f"{scale}.json"
    assert by_hand.differences(json.loads(stored.read_text())) == []


def test_a_wrong_number_of_seeds_on_the_page_is_found(tmp_path, monkeypatch):
    stored = PROJECT / "benchmarks" / "results" / "claims" / "small.json"
    page = tmp_path / "claims.md"
    page.write_text(by_hand.PAGE.read_text("utf-8").replace("| 5/5 |", "| 4/5 |", 1), "utf-8")
    monkeypatch.setattr(by_hand, "PAGE", page)
    assert len(by_hand.differences(json.loads(stored.read_text()))) == 1


def test_scales_disagree_where_signs_differ_beyond_the_spread():
    assert unstable(CLEAR, -CLEAR[:3])
    assert not unstable(CLEAR, CLEAR + 5)
    assert not unstable(CLEAR - 0.98, 0.98 - CLEAR)


def test_a_row_says_so_if_equal_fit_has_another_verdict():
    raw = raw_numbers(np.random.default_rng(3), 0)
    for seed in range(3, 8):
        for name, late, early in (("vit", 10.0, 1000.0), ("cnn", 100.0, 100.0)):
            run = raw.of_network(name)[seed]
            noise = 1 + 0.01 * seed * (name == "vit")
            run.quantities.update({"APE, trained objective @20": late * noise,
                               "APE, trained objective @1": early * noise,
                               f"{FIT} @20": 1.0 if name == "vit" else 0.5})  # fmt: skip
    effects = effects_of(raw)
    (row, equal) = np.flatnonzero(effects.row == "C1")[:2]
    assert effects.verdict[row] == REPRODUCED
    assert effects.effect[row] == pytest.approx(log(0.1 * 1.05), abs=0.01)
    assert effects.comparison[equal] == "equal training NLL"
    assert effects.verdict[equal] == OPPOSITE
    assert OPPOSITE in effects.note[row]


@pytest.mark.slow
def test_a_study_without_effects_has_a_false_verdict_in_at_most_5_percent():
    rng, rows = np.random.default_rng(4), list(PRIMARY)
    false = 0
    for _ in range(1000):
        values = rng.normal(size=(len(rows), 5))
        tested = {
            row: SeedEffects((v,), (1,), 0.5) for row, v in zip(rows, values, strict=True)
        }
        verdicts = {d.verdict for d in decide_all(tested, holm=len(rows)).values()}
        false += bool(verdicts & {REPRODUCED, OPPOSITE})
    assert false < 50 + 4 * 6.9  # 4 standard errors
