"""Laws of sharpness (src/visprism/loss/)."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from visprism import Objective, Run, mini_batch_sharpness, sharpness


@dataclass
class Quadratic:
    """theta^T A theta / 2 + b^T theta."""

    a: Tensor
    b: Tensor
    theta: Tensor

    def value(self, theta):
        return float(theta @ self.a @ theta / 2 + self.b @ theta)

    def gradient(self, theta):
        return self.a @ theta + self.b


@pytest.fixture
def quadratic():
    generator = torch.Generator().manual_seed(0)
    root, b, theta = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((6, 6), (6,), (6,))
    )
    return Quadratic(root @ root.T, b, theta)


# What it measures: closed forms.


def test_sam_on_a_quadratic(quadratic):
    result = sharpness(quadratic, ["sam"], rho=0.3)
    g = quadratic.gradient(quadratic.theta)
    d = 0.3 * g / g.norm()
    assert result.sharpness.item() == pytest.approx(float(g @ d + d @ quadratic.a @ d / 2))
    assert result.first_order.item() == pytest.approx(0.3 * float(g.norm()))


def test_along_an_eigenvector_it_is_the_curvature(quadratic):
    values, vectors = torch.linalg.eigh(quadratic.a)
    minimum = -torch.linalg.solve(quadratic.a, quadratic.b)
    quadratic.theta = minimum + 1e-6 * vectors[:, -1]
    result = sharpness(quadratic, ["sam"], rho=0.1)
    assert result.sharpness.item() == pytest.approx(float(values[-1]) * 0.1**2 / 2, rel=1e-4)


def test_asam_on_a_quadratic(quadratic):
    result = sharpness(quadratic, ["asam"], rho=0.3)
    g, scale = quadratic.gradient(quadratic.theta), quadratic.theta.abs() + 0.01
    d = 0.3 * scale**2 * g / (scale * g).norm()
    assert result.sharpness.item() == pytest.approx(float(g @ d + d @ quadratic.a @ d / 2))


# What leaves it unchanged: invariances.


def test_asam_does_not_see_how_two_layers_share_their_size():
    class Product:
        """A function of the product of two weights, as of two linear layers."""

        def __init__(self, theta):
            self.theta = torch.tensor(theta, dtype=torch.float64)

        def value(self, theta):
            return float((theta[0] * theta[1] - 3) ** 2)

        def gradient(self, theta):
            return 2 * (theta[0] * theta[1] - 3) * theta.flip(0)

    even, uneven = (sharpness(Product(t), rho=0.01) for t in ([1e3, 1e3], [1e5, 1e1]))
    rises = dict(
        zip(even.measure, zip(even.sharpness, uneven.sharpness, strict=True), strict=True)
    )
    assert rises["asam"][0] == pytest.approx(rises["asam"][1], rel=2e-3)
    assert rises["sam"][1] > 10 * rises["sam"][0]


# Of a network.


def test_it_is_the_rise_of_the_objective():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double().eval()
    images = torch.randn(8, 3, 2, 2, dtype=torch.float64, generator=torch.Generator())
    objective = Objective(model, [(images, torch.arange(8) % 3)], weight_decay=0.1)
    result = sharpness(objective)
    assert result.measure.tolist() == ["sam", "asam"]
    assert (result.sharpness > result.first_order).all()  # the loss is convex
    np.testing.assert_allclose(result.loss, objective.value())
    said = [str(finding) for finding in result.findings()]
    assert said[0].startswith(
        f"NLL rises by {result.sharpness[0]:.3g} along the gradient, at dist"
    )


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
    result = sharpness(quadratic, ["gaussian"], rho=0.3, directions=4000)
    exact = 0.3**2 * float(quadratic.a.trace()) / 12
    assert abs(result.sharpness.item() - exact) < 4 * result.error.item()
    assert result.error.item() < 0.02 * exact
    assert "in random Gaussian directions" in str(result.findings()[0])


def linear_objective(images=24):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    x = torch.randn(images, 3, 2, 2, dtype=torch.float64, generator=generator)
    y = torch.arange(images) % 3
    return Objective(model, list(zip(x.split(2), y.split(2), strict=True)))


def test_the_sharpness_of_mini_batches_is_that_of_each():
    objective = linear_objective(images=64)
    result = mini_batch_sharpness(objective, ["sam", "asam"], rho=0.1)
    for number, batch in enumerate(objective.batches):
        alone = sharpness(Objective(objective.model, [batch]), ["sam", "asam"], rho=0.1)
        rows = result.select(result.batch == number)
        np.testing.assert_allclose(rows.sharpness, alone.sharpness, rtol=1e-9)
    (sam, _) = result.means()
    assert sam[3] == pytest.approx(result.sharpness[result.measure == "sam"].mean())
    assert sam[4] < sam[3] < sam[5]  # an interval over 32 mini-batches
    few = result.select(result.batch < 31)
    assert np.isnan([m[4] for m in few.means()]).all()
    reason = "mean over 31 mini-batches (no interval: fewer than 32 mini-batches)"
    assert reason in str(few.findings()[0])
    assert result.provenance.images == 64


def test_the_interval_over_mini_batches_covers_the_mean():
    """Log-normal increases of 32 mini-batches, as measured ones are spread."""
    rng, inside, truth = np.random.default_rng(0), 0, np.exp(0.3**2 / 2)
    result = mini_batch_sharpness(linear_objective(images=64), ["sam"])
    for _ in range(400):
        values = np.exp(0.3 * rng.normal(size=32))
        (mean,) = replace(result, sharpness=values).means()
        inside += mean[4] <= truth <= mean[5]
    assert 0.92 <= inside / 400 <= 0.97


def test_a_seed_gives_the_same_directions(quadratic):
    one, same, other = (
        sharpness(quadratic, ["gaussian"], run=Run(seed=seed)).sharpness.item()
        for seed in (1, 1, 2)
    )
    assert one == same != other


# Contracts and errors.
