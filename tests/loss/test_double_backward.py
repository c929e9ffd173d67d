"""Laws of second derivatives that torch lacks or has wrong (loss/double_backward.py).

The evidence is torch's double backward of formulas, in float64.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import Objective
from visprism.core.run import stream
from visprism.loss.double_backward import differentiable

FORMULAS = {
    "silu": lambda x: x / (1 + (-x).exp()),
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
}


def tensor(shape, *use):
    return torch.randn(shape, generator=stream(0, *use)).double().requires_grad_()


def products(run, inputs):
    """The value, its gradient, and the gradient of the gradient in a fixed direction."""
    y = run(*inputs)
    gradient = torch.autograd.grad((y.abs() ** 3).sum(), inputs, create_graph=True)
    vectors = [torch.ones_like(g) for g in gradient]
    return y, *gradient, *torch.autograd.grad(gradient, inputs, vectors)


def assert_equal_products(run, reference, *inputs):
    expected = products(reference, inputs)
    with differentiable(nn.Identity()):
        ours = products(run, inputs)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


class Caching(nn.Module):
    """It keeps a table of its biases until its mode is set, as LeViT and TinyViT do."""

    def __init__(self):
        super().__init__()
        self.biases, self.kept = nn.Parameter(torch.arange(3.0).double()), None

    def train(self, mode=True):
        self.kept = None
        return super().train(mode)

    def forward(self, x):
        if self.kept is None:
            self.kept = self.biases.flip(0)
        return x.mean((2, 3)) * self.kept


def test_parameters_that_a_model_caches_have_derivatives():
    model = Caching().eval()
    images = torch.randn(3, 3, 2, 2, generator=stream(0, "images")).double()
    loss = functional.cross_entropy(model(images), torch.arange(3))
    (exact,) = torch.autograd.grad(loss, [model.biases])
    objective = Objective(model, [(images, torch.arange(3))])
    torch.testing.assert_close(objective.gradient(), exact)
    assert objective.at(-objective.theta).nll() != pytest.approx(objective.nll())
    assert model.kept is None  # no graph stays


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_second_derivatives_of_activations_are_those_of_the_formula(name, inplace):
    def run(x):
        return getattr(functional, name)(input=4 * x, inplace=inplace)

    assert_equal_products(run, lambda x: FORMULAS[name](4 * x), tensor((2, 3), "x"))


@pytest.mark.parametrize(
    ("shape", "dim", "axes"),
    [((5,), 0, None), ((5,), -1, 0), ((4, 3), 0, 1), ((4, 3), 1, 0), ((4, 3), -1, (0, 1))],
    ids=str,
)
def test_weight_norm_is_that_of_its_formula(shape, dim, axes):
    def formula(v, g):
        norm = v.abs() if axes is None else (v**2).sum(axes, keepdim=True).sqrt()
        return v * g / norm

    g = tensor([n if i == dim else 1 for i, n in enumerate(shape)], "g")
    assert_equal_products(
        lambda v, g: torch._weight_norm(v=v, g=g, dim=dim), formula, tensor(shape, "v"), g
    )
