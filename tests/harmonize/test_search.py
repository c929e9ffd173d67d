"""Laws of `search_replacements`: the search for the blocks that MSAs should replace."""

import json
from collections import OrderedDict

import numpy as np
import pytest
from scipy.stats import ttest_rel
from torch import nn
from torchvision.models.resnet import BasicBlock

from visprism import InputError, Run, search_replacements
from visprism.harmonize.replacement_search import paired_gain
from visprism.harmonize.search import is_significant
from visprism.results import ReplacementSearch


@pytest.fixture(scope="module")
def model():
    """Two residual blocks of 8 channels, and three of 16."""
    down = nn.Conv2d(8, 16, 1, 2)
    stages = {
        "layer1": nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8)),
        "layer2": nn.Sequential(
            BasicBlock(8, 16, 2, down), BasicBlock(16, 16), BasicBlock(16, 16)
        ),
    }
    ends = {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "head": nn.Linear(16, 4)}
    return nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 8, 3), **stages, **ends)).eval()


def msas(candidate):
    return {
        name.removesuffix(".attn")
        for name, module in candidate.named_modules()
        if name.endswith(".attn")
    }


class Trainer:
    """Accuracies by table: each MSA adds its own gain, each seed its own noise."""

    def __init__(self, gains, noise=0.0, die_after=None):
        self.gains, self.noise, self.left = gains, noise, die_after
        self.trained = []

    def __call__(self, candidate, seed):
        if self.left == len(self.trained):
            raise KeyboardInterrupt
        self.trained.append((frozenset(msas(candidate)), seed))
        wiggle = self.noise * (seed % 2) * len(msas(candidate))
        return 0.5 + sum(self.gains.get(name, -0.1) for name in msas(candidate)) + wiggle


GOOD = {"layer2.2": 0.1, "layer2.0": -0.05, "layer1.1": 0.05}


def test_follows_the_paper_s_rule(model, images):
    train = Trainer(GOOD)
    search = search_replacements(model, images, train, repeats=2, run=Run(seed=4))
    tried = [
        set(filter(None, str(candidate.placement[0]).split(",")))
        for candidate in search.candidates()
    ]
    assert tried == [
        set(),
        {"layer2.2"},  # helps
        {"layer2.2", "layer2.0"},  # does not: on to the end of the stage before
        {"layer2.2", "layer1.1"},
    ]
    selected = [bool(candidate.selected[0]) for candidate in search.candidates()]
    assert selected == [True, True, False, True]
    assert search.best == ("layer1.1", "layer2.2")
    confirmed = [set(), {"layer1.1", "layer2.2"}]
    trained = [names for names, _ in train.trained[::2]]
    assert trained == [frozenset(t) for t in tried + confirmed]
    np.testing.assert_array_equal(search.seed, [4, 5] * 4 + [6, 7] * 2)
    assert search.phase.tolist() == ["search"] * 8 + ["confirmation"] * 4
    assert search.accuracy[2] == pytest.approx(0.6)
    assert search.confirmed_gain() == pytest.approx((0.15, 0.15, 0.15))
    said = [str(finding) for finding in search.findings()]
    assert "2 MSA blocks selected (layer1.1, layer2.2) in 3 candidates" in said[0]
    assert "with 2 new seeds, validation accuracy 50.0% of the CNN and 65.0%" in said[1]
    ranked = "layer1.1 + layer2.2 +15 [15, 15]; layer2.2 +10 [10, 10]; layer2.0 + layer2.2 +5"
    assert ranked in said[2]


def test_selection_and_confirmation_are_the_paired_t_test_of_scipy():
    for seed in range(20):
        cnn, other = 0.5 + 0.01 * np.random.default_rng(seed).standard_normal((2, 5))
        other += 0.01
        expected = ttest_rel(other, cnn, alternative="greater")
        selected = is_significant(*paired_gain(cnn, other), 5, 0.05)
        assert selected == (expected.pvalue < 0.05)
        placed = np.array([""] * 5 + ["a"] * 5)
        result = ReplacementSearch(
            **{name: np.arange(2).repeat(5) for name in ("candidate", "msas")},
            **dict.fromkeys(("added", "placement"), placed),
            seed=np.tile(np.arange(5), 2),
            accuracy=np.concatenate([cnn, other]),
            selected=np.ones(10, dtype=bool),
            phase=np.full(10, "confirmation"),
            alpha=0.05,
        )
        interval = ttest_rel(other, cnn).confidence_interval()
        assert result.confirmed_gain()[1:] == pytest.approx((interval.low, interval.high))


@pytest.mark.slow
def test_an_interrupted_search_goes_on_where_it_ended(model, images, tmp_path):
    log = tmp_path / "search.json"
    uninterrupted = search_replacements(model, images, Trainer(GOOD), repeats=2)
    first = Trainer(GOOD, die_after=5)
    with pytest.raises(KeyboardInterrupt):
        search_replacements(model, images, first, repeats=2, log=log)
    assert len(json.loads(log.read_text())["values"]) == 5
    second = Trainer(GOOD)
    resumed = search_replacements(model, images, second, repeats=2, log=log)
    assert len(first.trained) + len(second.trained) == 12
    for name in ("placement", "seed", "accuracy", "selected"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(uninterrupted, name))
    assert len(json.loads(log.read_text())["values"]) == 12


def test_refuses_the_log_of_another_search(model, images, tmp_path):
    log = tmp_path / "search.json"
    with pytest.raises(KeyboardInterrupt):
        search_replacements(model, images, Trainer({}, die_after=1), repeats=2, log=log)
    with pytest.raises(InputError, match=r"another search \(different head_dim\)"):
        search_replacements(model, images, Trainer({}), repeats=2, log=log, head_dim=32)
    log.write_text("nothing of ours\n")
    with pytest.raises(InputError, match="must be the log of a search"):
        search_replacements(model, images, Trainer({}), repeats=2, log=log)
