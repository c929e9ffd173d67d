"""Laws of optimizers and learning rates (src/visprism/training/optimizers.py)."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR

from visprism import RECIPES, Recipe
from visprism.training.optimizers import learning_rate, make_optimizers

RECIPE = Recipe(epochs=3, batch_size=8, lr=0.05, weight_decay=0.1)


@pytest.fixture
def net():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    model.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
    model.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
    return model


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lamb"])
def test_decay_alone_shrinks_what_decays(net, optimizer):
    """With a gradient of zero a step is w - lr wd w, for what decays; Lamb scales it."""
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay=0.5)
    ((made, _),) = make_optimizers(net, recipe)
    before = [p.detach().clone() for p in net.parameters()]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    made.step()
    for old, new in zip(before, net.parameters(), strict=True):
        if old.squeeze().ndim < 2 or old.ndim == 3:
            torch.testing.assert_close(new, old)
        elif optimizer == "lamb":
            assert new.norm() < old.norm()
        else:
            torch.testing.assert_close(new, old - 0.05 * 0.5 * old)


def test_muon_moves_only_the_matrices_inside_of_blocks():
    head = nn.Sequential(nn.Linear(4, 2))
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), head)
    (adamw, _), (muon, _) = make_optimizers(model, replace(RECIPE, optimizer="muon"))
    moved = [p for group in muon.param_groups for p in group["params"]]
    assert [p is model[0][0].weight for p in moved] == [True]
    others = [p for group in adamw.param_groups for p in group["params"]]
    assert len(moved) + len(others) == len(list(model.parameters()))


def traced(name, steps, schedule):
    """Learning rates of PyTorch's schedulers, called where the paper's code calls them."""
    recipe = RECIPES[name]()
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=recipe.lr)
    warm = round(recipe.warmup * steps)
    main = schedule(optimizer)
    warmup = LambdaLR(optimizer, lambda k: k / warm)
    rates = []
    for epoch in range(recipe.epochs):
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if epoch < recipe.warmup:
                warmup.step()
        if epoch >= recipe.warmup:
            main.step()
    return recipe, rates


def test_rates_are_those_of_the_schedulers_of_the_papers_code():
    schedulers = {
        "strong_cifar": lambda optimizer: CosineAnnealingLR(optimizer, 300),
        "weak_cnn": lambda optimizer: MultiStepLR(optimizer, [60, 120, 160], 0.2),
    }
    for name, schedule in schedulers.items():
        recipe, rates = traced(name, 7, schedule)
        ours = [learning_rate(step, 7, recipe) for step in range(recipe.epochs * 7)]
        assert ours == pytest.approx(rates, abs=1e-12)
    constant = Recipe(epochs=11, batch_size=8, lr=1.0, warmup=0.0, schedule="constant")
    assert {learning_rate(step, 10, constant) for step in range(110)} == {1.0}
