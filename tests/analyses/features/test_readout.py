"""Laws of readouts and of pooled features."""

from collections import Counter

import numpy as np
import pytest
import torch
from maps import small_vit, tokens_by_hand
from rounding import assert_equal_up_to_rounding
from scipy.stats import binomtest
from torch import nn

import visprism as vp
from visprism.analyses.features.readout import (
    folds,
    lens_blocks,
    lens_predictions,
    neighbor_predictions,
    ridge_predictions,
)
from visprism.passes.pooled import pooled_features

CLASSES = 3


@pytest.fixture(scope="module")
def network():
    model, draw = small_vit(num_classes=CLASSES, reg_tokens=1), torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.4 * torch.randn(parameter.shape, generator=draw)
    return model


@pytest.fixture(scope="module")
def batches():
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(58) % CLASSES
    images = torch.randn(58, 3, 32, 32, generator=generator)
    images[torch.arange(58), targets] += 1
    return [(images[i : i + 16], targets[i : i + 16]) for i in range(0, 58, 16)]


def clusters(number, width, apart, seed=0):
    generator = np.random.default_rng(seed)
    targets = np.arange(number) % CLASSES
    centers = apart * generator.normal(size=(CLASSES, width))
    return centers[targets] + generator.normal(size=(number, width)), targets


@pytest.mark.parametrize("pooling", ["mean", "class", "both"])
def test_pooled_features_are_those_of_the_tokens(network, batches, pooling):
    anatomy = vp.dissect(network, batches[0][0])
    pooled = pooled_features(anatomy, batches, pooling=pooling, run=vp.Run())
    assert pooled.targets.tolist() == [c for _, targets in batches for c in targets.tolist()]
    images = torch.cat([images for images, _ in batches])
    tokens, _ = tokens_by_hand(network, images)
    for x, values in zip(tokens, pooled.features.values(), strict=True):
        parts = {"class": [x[:, 0]], "mean": [x[:, 2:].mean(1)]}
        parts["both"] = [*parts["class"], *parts["mean"]]
        assert_equal_up_to_rounding(values, torch.cat(parts[pooling], 1))
    assert_equal_up_to_rounding(pooled.logits, network(images).detach())


def by_vote(train, targets, test, k, temperature):
    """Each image alone, as the paper writes it."""
    predicted = []
    for x in test:
        cosine = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for y in train]
        votes = Counter()
        for i in sorted(range(len(train)), key=lambda i: -cosine[i])[:k]:
            votes[targets[i]] += np.exp(cosine[i] / temperature)
        predicted.append(max(votes, key=votes.get))
    return predicted


def test_neighbors_vote_as_in_the_definition():
    x, targets = clusters(80, 5, apart=0.7)
    options = {"neighbors": 50, "temperature": 0.1}  # all, so that the weights decide
    predicted = neighbor_predictions(x[:50], targets[:50], x[50:], **options)
    assert predicted.tolist() == by_vote(x[:50], targets[:50], x[50:], *options.values())
    assert 0.3 < (predicted == targets[50:]).mean() < 1


def test_the_ridge_probe_is_least_squares_with_the_penalty_as_further_rows():
    x, targets = clusters(60, 6, apart=0.5)
    x = x * [9, 1, 1, 1, 1, 1] + 5
    targets[::2] = 0
    penalty, splits = 0.3, list(folds(targets, 4))
    expected = np.empty(60, int)
    for fit, test in splits:
        mean, y = x[fit].mean(0), np.eye(CLASSES)[targets[fit]]
        scale = penalty * x[fit].var(0).mean() * len(fit)
        rows = np.concatenate([x[fit] - mean, scale**0.5 * np.eye(6)])
        aims = np.concatenate([y - y.mean(0), np.zeros((6, CLASSES))])
        weights = np.linalg.lstsq(rows, aims, rcond=None)[0]
        expected[test] = ((x[test] - mean) @ weights + y.mean(0)).argmax(1)
    predicted = ridge_predictions(x, targets, splits, penalty=penalty)
    assert predicted.tolist() == expected.tolist()
    assert 0.3 < (predicted == targets).mean() < 1


@pytest.mark.parametrize("classes", [2, 5])
def test_the_order_of_the_classes_does_not_matter(classes):
    targets = np.arange(60) % classes  # as in a data set whose classes take turns
    predicted = ridge_predictions(
        np.eye(classes)[targets], targets, list(folds(targets, 5)), penalty=0.01
    )
    assert (predicted == targets).all()
    for fit, test in folds(targets, 5):
        assert sorted([*fit, *test]) == list(range(60))
        counts = np.bincount(targets[test], minlength=classes)
        assert counts.max() - counts.min() <= 1


@torch.no_grad()
def test_the_lens_is_the_head_on_the_tokens_of_each_block(network, batches):
    anatomy = vp.dissect(network, batches[0][0])
    lens = lens_predictions(anatomy, batches, vp.Run())
    tokens, _ = tokens_by_hand(network, torch.cat([images for images, _ in batches]))
    assert len(lens) == len(tokens) == 5
    classes = set()
    for x, predicted in zip(tokens, lens.values(), strict=True):
        expected = network.head(network.norm(x)[:, 0]).argmax(1)
        assert predicted.tolist() == expected.tolist()
        classes.add(tuple(predicted.tolist()))
    assert len(classes) == 5  # the blocks differ


def test_the_lens_is_not_defined_where_widths_differ(batches):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 6, 2, 2), nn.Flatten(), nn.Linear(96, 3)
    ).eval()
    anatomy = vp.dissect(model, batches[0][0])
    assert [block.shape for block in lens_blocks(anatomy)] == [anatomy[-2].shape]
    result = vp.Readout(neighbors=5)(anatomy, batches)
    assert "another shape than the last block's" in result.lens_note
    lens = result.accuracy[result.readout == "logit lens"]
    assert np.isfinite(lens).sum() == 1


def test_accuracies_are_those_of_single_images_and_of_the_model(network, batches):
    result = vp.Readout(neighbors=5)(network, batches)
    assert result.evaluation == "5-fold cross-validation over 58 images"
    assert result.chance == pytest.approx(20 / 58)
    probe = result.select(result.readout == "ridge probe").accuracy
    (answer,) = result.answers()
    assert answer.by_unit.mean() == pytest.approx(answer.value) == pytest.approx(probe[-1])
    wilson = binomtest(round(58 * answer.value), 58).proportion_ci(method="wilson")
    assert (answer.low, answer.high) == pytest.approx((wilson.low, wilson.high))
    with torch.no_grad():
        right = [network(images).argmax(1) == targets for images, targets in batches]
    lens = result.accuracy[result.readout == "logit lens"]
    assert lens[-1] == pytest.approx(torch.cat(right).double().mean().item())
    assert probe.max() > 0.8  # the class is the brightest channel
