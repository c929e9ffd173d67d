"""Laws of `search_replacements`: the search for the blocks that MSAs should replace."""

import json

import numpy as np
import pytest
import torch

from visprism.core.errors import InputError
from visprism.harmonize import search_replacements
from visprism.harmonize.search import gain_over
from visprism.models import load_model


@pytest.fixture(scope="module")
def model():
    return load_model("resnet20").model


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


GOOD = {"layer3.2": 0.1, "layer3.0": -0.05, "layer2.2": 0.05, "layer2.0": 0.01}


def test_follows_the_paper_s_rule(model, images):
    train = Trainer(GOOD)
    found = search_replacements(model, images, train, repeats=2)
    tried = [
        set(filter(None, str(each.placement[0]).split(","))) for each in found.candidates()
    ]
    assert tried == [
        set(),
        {"layer3.2"},  # helps
        {"layer3.2", "layer3.0"},  # does not: on to the end of the stage before
        {"layer3.2", "layer2.2"},
        {"layer3.2", "layer2.2", "layer2.0"},
        {"layer3.2", "layer2.2", "layer2.0", "layer1.2"},
    ]
    assert [bool(each.kept[0]) for each in found.candidates()] == [
        True, True, False, True, True, False,
    ]  # fmt: skip
    assert found.best == ("layer2.0", "layer2.2", "layer3.2")
    assert [names for names, _ in train.trained[::2]] == [frozenset(t) for t in tried]
    np.testing.assert_array_equal(found.seed, [0, 1] * 6)
    assert found.accuracy[2] == pytest.approx(0.6)
    assert "3 MSA blocks (layer2.0, layer2.2, layer3.2) raise" in found.sentences()[0]


def test_a_gain_within_the_noise_is_not_kept(model, images):
    quiet = search_replacements(model, images, Trainer({"layer3.2": 0.01}), repeats=2)
    noisy = search_replacements(
        model, images, Trainer({"layer3.2": 0.01}, noise=-0.05), repeats=2
    )
    assert quiet.best == ("layer3.2",)
    assert noisy.best == ()
    assert "none of 3 MSA blocks helped" in noisy.sentences()[0]


def test_the_noise_is_the_standard_error_of_paired_gains():
    gain, error = gain_over([0.1, 0.2, 0.3], [0.2, 0.4, 0.6])
    assert gain == pytest.approx(0.2)
    assert error == pytest.approx(0.1 / 3**0.5)


def test_candidates_begin_with_the_model_s_own_weights(model, images):
    seen = []

    def train(candidate, _seed):
        seen.append(candidate.conv1.weight.detach().clone())
        with torch.no_grad():
            candidate.conv1.weight.zero_()
        return 0.5

    search_replacements(model, images, train, repeats=2)
    assert all(torch.equal(weight, model.conv1.weight) for weight in seen)


def test_an_interrupted_search_goes_on_where_it_ended(model, images, tmp_path):
    log = tmp_path / "search.jsonl"
    search_replacements(
        model, images, Trainer({}), repeats=2, log=str(tmp_path / "by-name.jsonl")
    )
    whole = search_replacements(model, images, Trainer(GOOD), repeats=2)
    first = Trainer(GOOD, die_after=5)
    with pytest.raises(KeyboardInterrupt):
        search_replacements(model, images, first, repeats=2, log=log)
    with log.open("a") as file:
        file.write('{"placement": ["layer3.')  # what a crash leaves
    second = Trainer(GOOD)
    resumed = search_replacements(model, images, second, repeats=2, log=log)
    assert len(first.trained) + len(second.trained) == 12
    for name in ("placement", "seed", "accuracy", "kept"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    assert len([json.loads(line) for line in log.read_text().splitlines()]) == 13


def test_refuses_the_log_of_another_search(model, images, tmp_path):
    log = tmp_path / "search.jsonl"
    search_replacements(model, images, Trainer({}), repeats=2, log=log)
    with pytest.raises(InputError, match=r"of another search .another head_dim."):
        search_replacements(model, images, Trainer({}), repeats=2, log=log, head_dim=32)
    log.write_text("nothing of ours\n")
    with pytest.raises(InputError, match="no log of a search"):
        search_replacements(model, images, Trainer({}), repeats=2, log=log)


def test_refuses_one_seed_and_what_is_no_accuracy(model, images):
    with pytest.raises(InputError, match="repeats is 1; wants at least 2"):
        search_replacements(model, images, Trainer({}), repeats=1)
    with pytest.raises(InputError, match=r"returned 97\.0; wants the accuracy"):
        search_replacements(model, images, lambda _candidate, _seed: 97.0, repeats=2)
    with pytest.raises(InputError, match="returned None; wants the accuracy"):
        search_replacements(model, images, lambda _candidate, _seed: None, repeats=2)
