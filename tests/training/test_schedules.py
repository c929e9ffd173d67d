"""Laws of learning rates (src/visprism/training/optimizers.py)."""

import pytest
import torch
from internals import learning_rate
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR

from visprism import RECIPES, Recipe


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


def test_the_strong_recipe_has_the_rates_of_the_papers_schedulers():
    steps = 7
    recipe, rates = traced("strong_cifar", steps, lambda o: CosineAnnealingLR(o, 300))
    ours = [learning_rate(step, steps, recipe) for step in range(305 * steps)]
    assert ours == pytest.approx(rates, abs=1e-12)
    assert (ours[0], ours[5 * steps]) == (0.0, 1.25e-4)


def test_the_weak_recipe_falls_to_a_fifth_at_60_120_and_160():
    recipe, rates = traced("weak_cnn", 3, lambda o: MultiStepLR(o, [60, 120, 160], 0.2))
    ours = [learning_rate(step, 3, recipe) for step in range(201 * 3)]
    assert ours == pytest.approx(rates)


def test_a_constant_rate_stays():
    constant = Recipe(epochs=11, batch_size=8, lr=1.0, warmup=0.0, schedule="constant")
    assert {learning_rate(step, 10, constant) for step in range(110)} == {1.0}
