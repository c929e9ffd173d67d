"""Laws of sharpness (src/visprism/measure/loss/sharpness.py)."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.measure.loss import Objective, sharpness


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
    found = sharpness(quadratic, ["sam"], rho=0.3)
    g = quadratic.gradient(quadratic.theta)
    d = 0.3 * g / g.norm()
    assert found.sharpness.item() == pytest.approx(float(g @ d + d @ quadratic.a @ d / 2))
    assert found.first_order.item() == pytest.approx(0.3 * float(g.norm()))


def test_along_an_eigenvector_it_is_the_curvature(quadratic):
    values, vectors = torch.linalg.eigh(quadratic.a)
    minimum = -torch.linalg.solve(quadratic.a, quadratic.b)
    quadratic.theta = minimum + 1e-6 * vectors[:, -1]
    found = sharpness(quadratic, ["sam"], rho=0.1)
    assert found.sharpness.item() == pytest.approx(float(values[-1]) * 0.1**2 / 2, rel=1e-4)


def test_asam_on_a_quadratic(quadratic):
    found = sharpness(quadratic, ["asam"], rho=0.3)
    g, scale = quadratic.gradient(quadratic.theta), quadratic.theta.abs() + 0.01
    d = 0.3 * scale**2 * g / (scale * g).norm()
    assert found.sharpness.item() == pytest.approx(float(g @ d + d @ quadratic.a @ d / 2))


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
        zip(even.rule, zip(even.sharpness, uneven.sharpness, strict=True), strict=True)
    )
    assert rises["asam"][0] == pytest.approx(rises["asam"][1], rel=2e-3)
    assert rises["sam"][1] > 10 * rises["sam"][0]


# Of a network.


def test_it_is_the_rise_of_the_objective():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double().eval()
    images = torch.randn(8, 3, 2, 2, dtype=torch.float64, generator=torch.Generator())
    objective = Objective(model, [(images, torch.arange(8) % 3)], weight_decay=0.1)
    found = sharpness(objective)
    assert found.rule.tolist() == ["sam", "asam"]
    assert (found.sharpness > found.first_order).all()  # the loss is convex
    np.testing.assert_allclose(found.loss, objective.value())
    assert len(found.sentences()) == 2


# Contracts and errors.


def test_what_cannot_be_is_refused(quadratic):
    with pytest.raises(InputError, match="no measure of sharpness max; there is sam and asam"):
        sharpness(quadratic, ["max"])
    with pytest.raises(InputError, match="no measure of sharpness is named"):
        sharpness(quadratic, [])
    with pytest.raises(InputError, match=r"rho is -1\.0; wants a positive number"):
        sharpness(quadratic, rho=-1.0)
    quadratic.theta = -torch.linalg.solve(quadratic.a, quadratic.b)
    quadratic.a, quadratic.b = torch.zeros(6, 6).double(), torch.zeros(6).double()
    with pytest.raises(InputError, match="its gradient has length 0; sharpness follows"):
        sharpness(quadratic)
