"""Laws of the convolutions of Hessian products (src/visprism/measure/loss/convolution.py).

The evidence is the gradient of a gradient by torch's own convolutions.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import Objective
from visprism.core.run import stream
from visprism.measure.loss import Products
from visprism.measure.loss.pointwise import CachedDerivatives

CASES = {
    "3x3": ((2, 4, 6, 6), (5, 4, 3, 3), {"padding": 1}),
    "1x1": ((2, 4, 6, 6), (5, 4, 1, 1), {}),
    "stride": ((2, 4, 7, 6), (5, 4, 3, 3), {"stride": (2, 3), "padding": (1, 0)}),
    "dilation": ((2, 4, 7, 7), (5, 4, 3, 3), {"dilation": 2, "padding": 1}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "padding": (1,)}),
    "depthwise": ((2, 4, 6, 6), (4, 1, 5, 5), {"groups": 4, "padding": 2}),
    "same": ((2, 4, 6, 6), (5, 4, 3, 3), {"padding": "same"}),
    "1d": ((2, 4, 9), (5, 4, 3), {"stride": 2}),
    "3d": ((2, 2, 4, 4, 4), (3, 2, 3, 3, 3), {"padding": 1}),
    "NumPy stride": ((2, 4, 6, 6), (5, 4, 3, 3), {"stride": np.int64(2)}),
    "no batch": ((4, 6, 6), (5, 4, 3, 3), {"padding": 1}),
}


def tensor(shape, *use):
    return torch.randn(shape, generator=stream(0, *use)).double().requires_grad_()


def run_of(kernel_shape):
    return (functional.conv1d, functional.conv2d, functional.conv3d)[len(kernel_shape) - 3]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_are_those_of_torch(name, bias):
    shape, kernel_shape, options = CASES[name]
    x, kernel = tensor(shape, "x"), tensor(kernel_shape, "kernel")
    inputs = [x, kernel, *([tensor(kernel_shape[:1], "bias")] if bias else [])]
    run = run_of(kernel_shape)

    def products():
        y = run(*inputs, **options)
        gradient = torch.autograd.grad((y**3).sum(), inputs, create_graph=True)
        vectors = [tensor(g.shape, "v", i).detach() for i, g in enumerate(gradient)]
        return y, *gradient, *torch.autograd.grad(gradient, inputs, vectors)

    expected = products()
    with CachedDerivatives():
        ours = products()
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_some_inputs_may_be_frozen(chosen):
    inputs = [tensor(s, "frozen", *s) for s in ((2, 4, 6, 6), (5, 4, 3, 3), (5,))]
    for i, t in enumerate(inputs):
        t.requires_grad_(i in chosen)
    leaves = [inputs[i] for i in chosen]

    def products():
        y = functional.conv2d(*inputs)
        gradient = torch.autograd.grad((y**3).sum(), leaves, create_graph=True)
        return torch.autograd.grad([g.sum() for g in gradient], leaves)

    expected = products()
    with CachedDerivatives():
        torch.testing.assert_close(products(), expected, rtol=1e-11, atol=1e-11)


class Twice(nn.Module):
    """One convolution that runs twice, and a view that needs contiguous feature maps."""

    def __init__(self, flatten):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.head = nn.Linear(192, 4)
        self.flatten = flatten

    def forward(self, x):
        return self.head(self.flatten(self.conv(self.conv(x).tanh()).tanh()))


FLATTEN = {
    "any format": lambda x: x.flatten(1),
    "contiguous only": lambda x: x.view(len(x), -1),
}


@pytest.mark.parametrize("matrix", ["hessian", "gauss-newton"])
@pytest.mark.parametrize("name", FLATTEN)
def test_a_kernel_that_is_used_twice_has_the_sum_of_both(name, matrix):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Twice(FLATTEN[name]).double().eval()
    images = torch.randn(6, 3, 8, 8, generator=stream(0, "images")).double()
    targets = torch.tensor([0, 1, 2, 3, 0, 1])
    objective = Objective(model, [(images, targets)])
    assert objective.channels_last == (name == "any format")
    V = torch.randn(1, 3, len(objective), generator=stream(0, "v")).double()
    parameters = list(model.parameters())
    logits = model(images)
    loss = functional.cross_entropy(logits, targets)
    products = Products(objective, matrix)
    for v, product, again in zip(V[0], products(V)[0], products(V)[0], strict=True):
        parts = list(objective.unflatten(v).values())
        if matrix == "hessian":
            gradient = torch.autograd.grad(loss, parameters, create_graph=True)
            exact = torch.autograd.grad(gradient, parameters, parts, retain_graph=True)
        else:
            exact = by_jacobian(model, images, targets, parameters, parts)
        flat = torch.cat([part.flatten() for part in exact])
        torch.testing.assert_close(product, flat, rtol=1e-10, atol=1e-12)
        assert torch.equal(product, again)


def by_jacobian(model, images, targets, parameters, parts):
    names = [name for name, _ in model.named_parameters()]

    def logits(*tensors):
        return torch.func.functional_call(
            model, dict(zip(names, tensors, strict=True)), (images,)
        )

    J = torch.autograd.functional.jacobian(logits, tuple(parameters))
    flat = torch.cat([part.flatten(2) for part in J], 2).flatten(0, 1)
    z = logits(*parameters).detach()
    curvature = torch.autograd.functional.hessian(
        lambda z: functional.cross_entropy(z, targets), z
    ).reshape(len(flat), len(flat))
    vector = torch.cat([part.flatten() for part in parts])
    return [flat.T @ (curvature @ (flat @ vector))]


@pytest.mark.parametrize("bias", [True, False])
def test_complex_convolutions_are_those_of_torch(bias):
    shapes = (2, 3, 5, 5), (4, 3, 3, 3), (4,)
    inputs = [
        torch.randn(s, generator=stream(0, *s), dtype=torch.complex128, requires_grad=True)
        for s in shapes[: 2 + bias]
    ]

    def products():
        y = functional.conv2d(*inputs, padding=1)
        gradient = torch.autograd.grad((y.abs() ** 3).sum(), inputs, create_graph=True)
        vectors = [torch.ones_like(g) for g in gradient]
        return y, *gradient, *torch.autograd.grad(gradient, inputs, vectors)

    expected = products()
    with CachedDerivatives():
        ours = products()
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_automatic_casts_of_a_model_are_those_of_torch():
    x, kernel = torch.randn(2, 4, 6, 6), torch.randn(5, 4, 3, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16), CachedDerivatives():
        y = functional.conv2d(x, kernel)
    assert y.dtype == torch.bfloat16
    assert "Convolution" in y.grad_fn.name()
    assert "_Convolution" not in y.grad_fn.name()


def test_errors_of_shapes_are_those_of_torch():
    x, kernel = torch.randn(2, 3, 6, 6), torch.randn(5, 4, 3, 3, requires_grad=True)
    with CachedDerivatives(), pytest.raises(RuntimeError, match="to have 4 channels"):
        functional.conv2d(x, kernel)
