"""Laws of training (src/visprism/training)."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from visprism.training import Recipe, fit
from visprism.training.loop import accuracy, learning_rate
from visprism.training.optimizers import decay_groups, make_optimizers

RECIPE = Recipe(images=44, epochs=3, batch_size=8, lr=0.05, warmup=0.2)
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


@pytest.fixture
def labelled():
    """Images whose class is which half is bright: a linear map can tell."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 60, (44, 3, 4, 4), generator=generator, dtype=torch.uint8)
    targets = torch.arange(44) % 2
    for half in (0, 1):
        images[targets == half, :, :, 2 * half : 2 * half + 2] += 150
    return images, targets


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 2))


# What it does.


def test_learns_what_can_be_learned(model, labelled):
    history = fit(model, labelled, labelled, RECIPE, **PLAIN)
    assert history.test_accuracy[-1] == 1.0
    assert history.train_loss[-1] < history.train_loss[0]
    assert history.epoch.tolist() == [1, 2, 3]


def test_every_epoch_sees_each_image_once(labelled):
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            if self.training:
                seen.extend(x[:, 0].tolist())
            return super().forward(x)

    images, targets = labelled
    images[:, 0, 0, 0] = torch.arange(len(images), dtype=torch.uint8)  # a mark
    model = nn.Sequential(nn.Flatten(), Spy(48, 2))
    fit(model, (images, targets), (images, targets), RECIPE, **PLAIN)
    epochs = [
        [round(255 * mark) for mark in seen[i : i + len(images)]]
        for i in range(0, len(seen), len(images))
    ]
    assert len(epochs) == 3
    assert all(sorted(epoch) == list(range(len(images))) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_the_learning_rate_rises_linearly_and_falls_as_a_cosine():
    recipe = replace(RECIPE, lr=1.0, warmup=0.1)
    rates = [learning_rate(step, 110, recipe) for step in range(110)]
    assert rates[:11] == pytest.approx([k / 12 for k in range(1, 12)])
    assert rates[11] == 1.0
    middle = 11 + 99 / 3
    assert rates[int(middle)] == pytest.approx(0.5 * (1 + math.cos(math.pi / 3)))
    assert 0 < rates[-1] < 1e-3


def test_the_first_step_is_that_of_adam(model, labelled):
    # With weight decay off, Adam's first step is lr in the direction of the gradient's sign.
    recipe = Recipe(images=44, epochs=1, batch_size=44, lr=0.01, weight_decay=0.0, warmup=0.0)
    before = copy.deepcopy(model)
    images, targets = labelled
    nn.functional.cross_entropy(before(images / 255), targets).backward()
    fit(model, labelled, labelled, recipe, **PLAIN)
    for old, new in zip(before.parameters(), model.parameters(), strict=True):
        moved = old.grad.abs() > 1e-4  # where Adam's epsilon of 1e-8 is nothing, clipping too
        expected = old - 0.01 * old.grad.sign()
        torch.testing.assert_close(new[moved], expected[moved], rtol=0, atol=1e-5)


def test_only_kernels_and_matrices_decay():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    model.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
    model.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
    decays, rest = decay_groups(model.parameters(), 0.1)
    assert [tuple(p.shape) for p in decays["params"]] == [(4, 3, 3, 3), (2, 16)]
    assert (decays["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert len(rest["params"]) == 6


def test_muon_moves_only_the_matrices_inside_of_blocks():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), nn.Linear(4, 2))
    recipe = replace(RECIPE, optimizer="muon")
    (adamw, _), (muon, _) = make_optimizers(model, recipe)
    moved = [p for group in muon.param_groups for p in group["params"]]
    assert [p is model[0][0].weight for p in moved] == [True]
    others = [p for group in adamw.param_groups for p in group["params"]]
    assert len(moved) + len(others) == len(list(model.parameters()))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_both_optimizers_learn(labelled, optimizer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(48, 8), nn.ReLU())
        model = nn.Sequential(nn.Flatten(), block, nn.Linear(8, 2))
    recipe = replace(RECIPE, optimizer=optimizer, lr=0.02)
    assert fit(model, labelled, labelled, recipe, **PLAIN).test_accuracy[-1] == 1.0


# What leaves it unchanged.


def test_the_same_recipe_gives_the_same_weights(model, labelled):
    twin = copy.deepcopy(model)
    fit(model, labelled, labelled, RECIPE, **PLAIN)
    torch.rand(3)  # the global generator is not read
    fit(twin, labelled, labelled, RECIPE, **PLAIN)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=0)


def test_another_seed_gives_another_order(model, labelled):
    twin = copy.deepcopy(model)
    fit(model, labelled, labelled, RECIPE, **PLAIN)
    fit(twin, labelled, labelled, replace(RECIPE, seed=1), **PLAIN)
    assert not torch.equal(model[1].weight, twin[1].weight)


def test_accuracy_counts_a_smaller_last_batch_by_its_images(labelled):
    class Zero(nn.Module):
        def forward(self, x):
            return torch.tensor([[1.0, 0.0]]).expand(len(x), 2)

    images, targets = labelled
    assert accuracy(Zero(), (images[:7], targets[:7]), lambda x: x, batch_size=5) == 4 / 7


# Contracts and errors.


def test_leaves_the_model_in_evaluation_mode(model, labelled):
    fit(model, labelled, labelled, RECIPE, **PLAIN)
    assert not model.training


def test_a_loss_that_is_not_finite_names_the_step(model, labelled):
    with torch.no_grad():
        model[1].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"the loss is nan at step 1 of 18, learning rate"):
        fit(model, labelled, labelled, RECIPE, **PLAIN)


def test_targets_must_be_classes_of_the_model(model, labelled):
    images, targets = labelled
    with pytest.raises(
        ValueError, match="targets run from 1 to 2; the model has classes 0 to 1"
    ):
        fit(model, (images, targets + 1), labelled, RECIPE, **PLAIN)


def test_there_must_be_images(model, labelled):
    none = labelled[0][:0], labelled[1][:0]
    with pytest.raises(ValueError, match="no images to train on"):
        fit(model, none, labelled, RECIPE, **PLAIN)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"lr": -1.0}, {"batch_size": 0}])
def test_a_recipe_needs_positive_numbers(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"recipe: {name} is"):
        replace(RECIPE, **wrong)


def test_warmup_is_a_part_of_the_steps():
    with pytest.raises(ValueError, match=r"warmup is 1\.5; wants a part"):
        replace(RECIPE, warmup=1.5)
