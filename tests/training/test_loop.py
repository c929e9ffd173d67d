"""Laws of training (src/visprism/training/loop.py)."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_equal_up_to_rounding
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from visprism import calibration, fit, predict


def same(model, twin):
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd", "lamb"])
def test_every_optimizer_learns(recipe, test_batches, optimizer, make_feed):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(48, 8), nn.ReLU())
        model = nn.Sequential(nn.Flatten(), block, nn.Linear(8, 2))
    recipe = replace(recipe, optimizer=optimizer, lr=0.1 if optimizer == "sgd" else 0.02)
    rates = {"AdamW": [], "Muon": [], "SGD": [], "Lamb": []}
    hook = register_optimizer_step_pre_hook(
        lambda made, *_: rates[type(made).__name__].append(made.param_groups[0]["lr"])
    )
    history = fit(model, make_feed(recipe), recipe, test=test_batches)
    hook.remove()
    assert history.test_accuracy[-1] == 1.0
    if optimizer == "muon":
        assert rates["Muon"] == [4 * rate for rate in rates["AdamW"]]


def test_the_loop_is_the_protocol_written_out(model, recipe, mixed, make_feed):
    """The strong recipe's optimizer, warm-up, cosine, clipping and loss, in plain PyTorch."""
    recipe = replace(
        recipe, augmentation=mixed, lr=0.01, decay_params="all", clip=0.5, warmup=1.0,
        schedule="cosine by epoch",
    )  # fmt: skip
    feed, twin = make_feed(recipe), copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0.05)
    losses = []
    for epoch in range(3):
        total = 0.0
        for step, (images, probabilities) in enumerate(feed.epoch(epoch)):
            warm = step / 6 if epoch == 0 else 0.5 * (1 + math.cos(math.pi * (epoch - 1) / 2))
            optimizer.param_groups[0]["lr"] = 0.01 * warm
            optimizer.zero_grad()
            loss = -(probabilities * twin(images).log_softmax(1)).sum(1).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
            optimizer.step()
            total += loss.item() * len(images)
        losses.append(total / feed.images)
    history = fit(model, feed, recipe)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(history.train_loss, losses, rtol=1e-5)
    np.testing.assert_allclose(history.lr, [0.01 * 5 / 6, 0.01, 0.005])


def test_metrics_are_those_of_the_weights_after_the_epoch(
    model, recipe, test_batches, make_feed
):
    history = fit(model, make_feed(recipe), recipe, test=test_batches)
    metrics = calibration(predict(model, test_batches))
    assert_equal_up_to_rounding(history.test_nll[-1], metrics.nll)
    assert_equal_up_to_rounding(history.test_ece[-1], metrics.ece)
    assert (history.epoch.tolist(), history.step.tolist()) == ([1, 2, 3], [6, 12, 18])
    said = "test accuracy 100.0% [92.0%, 100.0%] (44 test images, 95% interval)"
    assert said in str(history.findings()[1])


def test_the_same_recipe_gives_the_same_weights(recipe, mixed, make_feed, make_model):
    recipe = replace(recipe, augmentation=mixed)
    model, twin = make_model(nn.Dropout(0.5)), make_model(nn.Dropout(0.5))
    fit(model, make_feed(recipe), recipe)
    torch.rand(3)  # the global generator is not read,
    before = torch.random.get_rng_state()
    fit(twin, make_feed(recipe), recipe)
    same(model, twin)
    torch.testing.assert_close(torch.random.get_rng_state(), before)  # nor moved


def test_evaluation_changes_nothing(recipe, test_batches, make_feed, make_model):
    model, twin = make_model(nn.BatchNorm1d(8)), make_model(nn.BatchNorm1d(8))
    fit(model, make_feed(recipe), recipe)
    fit(twin, make_feed(recipe), recipe, test=test_batches)
    same(model, twin)


def test_bf16_and_channels_last_change_the_weights_by_rounding(recipe, make_feed):
    def net():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))

    model, twin, third = net(), net(), net()
    recipe = replace(recipe, epochs=1, lr=1e-3, warmup=0.0, optimizer="sgd")
    fit(model, make_feed(recipe), recipe)
    last = replace(recipe, channels_last=True)
    fit(twin, make_feed(last), last)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=1e-6)
    half = replace(recipe, precision="bf16")
    fit(third, make_feed(half), half)
    assert {p.dtype for p in third.parameters()} == {torch.float32}
    difference = (third[0].weight - model[0].weight).abs().max()
    assert 0 < difference < 1e-3


class Breaks(torch.optim.SGD):
    """Its sixth step, the last of an epoch, leaves a weight that is `value`."""

    value, made = math.nan, 0

    def step(self, closure=None):
        super().step(closure)
        self.made += 1
        if self.made == 6:
            with torch.no_grad():
                self.param_groups[0]["params"][0].view(-1)[0] = self.value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, r"finite, but 1\.weight is not after step 6 of 18 \(epoch 1, batch 6"
         r"\), learning rate 0\.048\. .* There is no training checkpoint yet"),
        (3e38, r"NaN.* \(in the evaluation after step 6 of 18 \(epoch 1, batch 6\)"),
    ],
)  # fmt: skip
def test_weights_that_are_not_finite_are_reported_before_they_are_evaluated(
    tmp_path, model, recipe, make_feed, test_batches, monkeypatch, value, message
):
    def made(model, _):
        optimizer = Breaks(model.parameters(), lr=0.05)
        optimizer.value = value
        return [(optimizer, 1.0)]

    monkeypatch.setattr("visprism.training.engine.make_optimizers", made)
    images, targets = test_batches[0]
    test = [(1e3 * images.abs() + 1e3, targets)]
    with pytest.raises(ValueError, match=message):
        fit(model, make_feed(recipe), recipe, test=test, folder=tmp_path)


def test_snapshots_need_a_folder(model, recipe, make_feed):
    recipe = replace(recipe, snapshot_every=1)
    with pytest.raises(ValueError, match="snapshot_every must be 0 without a folder, got 1"):
        fit(model, make_feed(recipe), recipe)
