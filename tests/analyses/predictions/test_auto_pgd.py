"""Laws of Auto-PGD and the DLR loss."""

import math

import numpy as np
import pytest
import torch
from attacked import gray, small_network
from torch import nn

from visprism import Attack
from visprism.analyses.predictions.attacks import (
    AttackLoss,
    PerturbationBall,
    attack_images,
    auto_pgd,
    checkpoints,
    other_classes,
)
from visprism.passes.perturbed import PixelSpace

SPACE = PixelSpace((0.0,) * 3, (1.0,) * 3)
CLASSES = 5


class Linear(nn.Module):
    """Logits W (x - 1/2), whose largest change within a ball is known."""

    def __init__(self, classes=CLASSES):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(classes, 192, generator=generator).double())

    def forward(self, x):
        return (x.flatten(1) - 0.5) @ self.weight.T


def classified(classes=CLASSES):
    model, pixels = Linear(classes).eval(), gray(24)[0]
    return model, pixels, model(pixels).argmax(1)


def largest_margins(model, pixels, targets, epsilon, norm):
    """The margin under the best perturbation: that of a linear score is the dual norm."""
    logits = model(pixels)
    rows = torch.arange(len(pixels))
    gaps = logits - logits[rows, targets][:, None]
    weights = model.weight[None] - model.weight[targets][:, None]
    order = 1 if norm == "linf" else 2
    reached = gaps + epsilon * weights.norm(p=order, dim=2)
    reached[rows, targets] = -torch.inf
    return reached.amax(1)


@pytest.mark.parametrize("name", ["fgsm", "pgd", "apgd"])
@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.05), ("l2", 0.3)])
@torch.no_grad()
def test_of_two_linear_scores_the_dual_norm_is_reached(name, norm, epsilon):
    model, pixels, targets = classified(2)
    attack = Attack(name, epsilon, norm, steps=60, step_size=0.2)
    attacked = attack_images(model, pixels, targets, attack, SPACE).pixels
    margin = AttackLoss(model, SPACE, targets).margin(attacked)
    best = largest_margins(model, pixels, targets, epsilon, norm)
    assert margin.tolist() == pytest.approx(best.tolist(), rel=1e-3, abs=1e-3)


@torch.no_grad()
def test_targeted_it_leaves_the_images_that_no_perturbation_can_change():
    norm, epsilon = "l2", 0.06
    model, pixels, targets = classified()
    best = largest_margins(model, pixels, targets, epsilon, norm)
    assert 0 < (best > 0).sum() < len(best)
    assert best.abs().min() > 2e-3  # no image is on the edge
    attack = Attack("apgd-t", epsilon, norm, "dlr", steps=40)
    attacked = attack_images(model, pixels, targets, attack, SPACE).pixels
    misclassified = model(attacked).argmax(1) != targets
    assert misclassified.tolist() == (best > 0).tolist()


def test_dlr_by_hand():
    logits = torch.tensor([[4.0, 1.0, 3.0, 0.0, -1.0]])
    loss = AttackLoss(nn.Identity(), SPACE, torch.tensor([0]), "dlr")
    assert loss.of(logits).item() == pytest.approx(-(4 - 3) / (4 - 1))
    targeted = AttackLoss(nn.Identity(), SPACE, torch.tensor([0]), "dlr", torch.tensor([3]))
    assert targeted.of(logits).item() == pytest.approx(-(4 - 0) / (4 - (1 + 0) / 2))
    assert other_classes(logits, torch.tensor([0]), 3).tolist() == [[2, 1, 3]]
    assert other_classes(logits, torch.tensor([0]), 9).tolist() == [[2, 1, 3, 4]]


def by_the_paper(loss, pixels, perturbation, ball, steps):
    """Algorithm 1 for one image, with the names of the paper."""
    points = [math.ceil(p * steps) for p in (0.22, 0.41, 0.57, 0.70, 0.80, 0.87, 0.93, 0.99)]

    def value(x):
        return loss.values(pixels + x).loss.item()

    def climb(x, eta):
        return ball.project(x + eta * ball.steepest_step(loss.values(pixels + x).gradient),
                            pixels)  # fmt: skip

    xs, eta = [perturbation], 2.0
    xs.append(climb(xs[0], eta))
    f = [value(x) for x in xs]
    f_max = max(f)
    x_max = xs[int(np.argmax(f))]
    visited = [*xs]
    etas_at, fmax_at, rises = {0: eta}, {0: f[0]}, [f[1] > f[0]]
    before = 0
    for k in range(1, steps):
        if k in points:
            first = sum(rises[before:k]) < 0.75 * (k - before)
            second = etas_at[before] == eta and fmax_at[before] == f_max
            if first or second:
                eta, xs[-1], f[-1] = eta / 2, x_max, f_max
            etas_at[k], fmax_at[k] = eta, f_max
            before = k
        z = climb(xs[-1], eta)
        new = ball.project(xs[-1] + 0.75 * (z - xs[-1]) + 0.25 * (xs[-1] - xs[-2]), pixels)
        xs.append(new)
        visited.append(new)
        f.append(value(new))
        rises.append(f[-1] > f[-2])
        if f[-1] > f_max:
            f_max, x_max = f[-1], new
    return visited


@pytest.mark.parametrize(("norm", "name"), [("linf", "dlr"), ("l2", "cross-entropy")])
def test_the_iterates_are_those_of_a_loop_over_single_images(norm, name):
    network = small_network().double()
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    pixels = gray(3)[0]
    targets = network(pixels).argmax(1)
    attack = Attack("apgd", 0.2, norm, name, steps=24)
    start = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(3)).double()
    ball = PerturbationBall(attack)
    start = ball.project(start, pixels)
    loss = AttackLoss(network, SPACE, targets, name)
    together = [x for x, _ in auto_pgd(pixels, start, ball, loss)]
    for i in range(3):
        alone = AttackLoss(network, SPACE, targets[i : i + 1], name)
        expected = by_the_paper(alone, pixels[i : i + 1], start[i : i + 1], ball, 24)
        assert len(expected) == len(together) == 25
        for one, other in zip(together, expected, strict=True):
            torch.testing.assert_close(one[i : i + 1], pixels[i : i + 1] + other)
