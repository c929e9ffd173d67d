"""Laws of sharpness."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import Objective, Sharpness


def sharpness(objective, measures=("sam", "asam", "gaussian"), **options):
    return Sharpness(measures=tuple(measures), **options).of(objective)


class Point(nn.Module):
    """Its logits are its parameters, for every image."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(theta)

    def forward(self, images):
        return self.theta.expand(len(images), -1)


class Quadratic(Objective):
    """theta^T A theta / 2 + b^T theta, by one batch of one image."""

    def __init__(self, a, b, theta):
        def loss(logits, _):
            return ((logits @ a) * logits).sum(1) / 2 + logits @ b

        batch = torch.zeros(1, 3, 2, 2).double(), torch.zeros(1).long()
        super().__init__(Point(theta).eval(), [batch], loss=loss)
        object.__setattr__(self, "a", a)


@pytest.fixture
def quadratic():
    generator = torch.Generator().manual_seed(0)
    root, b, theta = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((6, 6), (6,), (6,))
    )
    return Quadratic(root @ root.T, b, theta)


@pytest.mark.parametrize("measure", ["sam", "asam"])
def test_the_rise_on_a_quadratic(quadratic, measure):
    g, scale = quadratic.gradient(quadratic.theta), quadratic.theta.abs() + 0.01
    scale = scale if measure == "asam" else torch.ones_like(scale)
    d = 0.3 * scale**2 * g / (scale * g).norm()
    result = sharpness(quadratic, [measure], rho=0.3)
    assert result.sharpness.item() == pytest.approx(float(g @ d + d @ quadratic.a @ d / 2))
    assert result.first_order.item() == pytest.approx(float(g @ d))


def test_several_steps_rise_higher_and_stay_within_the_distance(quadratic):
    steps = [
        sharpness(quadratic, ["sam"], rho=0.5, steps=n).sharpness.item() for n in (1, 4, 40)
    ]
    assert steps[0] <= steps[1] <= steps[2] + 1e-9
    # No direction of that length rises higher: a grid search over 20,000 random ones.
    noise = torch.randn(
        20_000, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    d = 0.5 * noise / noise.norm(dim=1, keepdim=True)
    g = quadratic.gradient(quadratic.theta)
    best = float((d @ g + ((d @ quadratic.a) * d).sum(1) / 2).max())
    assert steps[2] == pytest.approx(best, rel=0.05)


def test_the_gaussian_average_of_a_quadratic_is_its_trace(quadratic):
    """E[d' A d / 2] = rho^2 tr A / (2 P) for directions of length rho."""
    result = sharpness(quadratic, ["gaussian"], rho=0.3, directions=2000)
    exact = 0.3**2 * float(quadratic.a.trace()) / 12
    assert result.sharpness[0] == pytest.approx(exact, rel=0.06)  # two standard errors
    ball = Quadratic(torch.eye(6).double(), torch.ones(6).double(), quadratic.theta)
    rise = sharpness(ball, ["gaussian"], rho=0.3, directions=3).sharpness[0]
    assert rise == pytest.approx(0.3**2 / 2)  # the same in all directions


def linear_objective(images=24):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    x = torch.randn(images, 3, 2, 2, dtype=torch.float64, generator=generator)
    y = torch.arange(images) % 3
    return Objective(model, list(zip(x.split(2), y.split(2), strict=True)))


def test_the_sharpness_of_mini_batches_is_the_mean_of_each():
    objective = linear_objective(images=64)
    measures = ["sam", "asam", "gaussian"]
    result = sharpness(objective, measures, rho=0.1, directions=2)
    for number in (0, 9):
        batch = objective.batches[number]
        alone = sharpness(Objective(objective.model, [batch]), measures, rho=0.1, directions=2)
        np.testing.assert_allclose(result.sharpness.by_unit[number], alone.sharpness, rtol=1e-9)
    np.testing.assert_allclose(result.loss, objective.value())  # batches have one size
    sam = result.sharpness[0]
    assert sam == pytest.approx(sam.by_unit.mean())
    assert sam.low < sam < sam.high  # an interval over 32 mini-batches
    assert result.provenance.images == 64
    few = sharpness(linear_objective(images=62), ["sam"])
    assert np.isnan(few.sharpness[0].low)
    fitted = linear_objective(images=2)
    with torch.no_grad():
        fitted.model[1].bias.copy_(torch.tensor([1e4, 0.0, 0.0]))  # its loss of class 0 is 0
    images, _ = fitted.batches[0]
    exact = sharpness(Objective(fitted.model, [(images, torch.zeros(2).long())]))
    assert exact.sharpness.tolist() == [0, 0, 0]
