"""Laws of the curvature during training (src/visprism/loss/)."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn
from torch.nn.functional import one_hot

from visprism import Objective, training_curvature
from visprism.core.run import stream
from visprism.loss.products import Products
from visprism.loss.update_rules import sam_threshold, update_rule


def squared(logits, targets):
    return (logits - one_hot(targets, logits.shape[1])).square().sum(1)


@pytest.fixture
def quadratic():
    """A linear model with squared loss, its batch, and its Hessian 2/N X'X for each output."""
    images = torch.randn(12, 1, 2, 2, generator=stream(0, "images")).double()
    targets = torch.arange(12) % 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)).double()
    design = images.flatten(1).numpy()
    hessian = np.kron(np.eye(2), 2 / 12 * design.T @ design)
    return model, [(images, targets)], hessian


def descend(model, batches, optimizer, steps, every=0):
    """Losses of full-batch updates, or the curvature after every few of them."""
    losses, curvatures = [], []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = squared(model(batches[0][0]), batches[0][1]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if every and step % every == 0:
            now = training_curvature(model, batches, optimizer, loss=squared, step=step)
            curvatures.append(now)
    return curvatures if every else losses


@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.8, "dampening": 0.8}],
    ids=str,
)
def test_updates_diverge_exactly_where_the_eigenvalue_exceeds_the_threshold(quadratic, options):
    model, batches, hessian = quadratic
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, **options)
    row = training_curvature(model, batches, optimizer, loss=squared, tol=1e-9)
    assert row.eigenvalue[0] == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-9)
    critical = row.threshold[0] / row.eigenvalue[0]  # times the learning rate of 1
    for factor in (0.98, 1.02):
        with torch.no_grad():
            model[1].weight.copy_(torch.ones(2, 4))
        updates = torch.optim.SGD(model.parameters(), lr=factor * critical, **options)
        losses = descend(model, batches, updates, 400)
        assert (losses[-1] > 1e3 * losses[0]) == (factor > 1)


def test_coupled_weight_decay_adds_to_the_curvature(quadratic):
    model, batches, hessian = quadratic
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.7)
    result = training_curvature(model, batches, optimizer, loss=squared, tol=1e-9)
    expected = np.linalg.eigvalsh(hessian)[-1] + 0.7
    assert result.eigenvalue[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW])
def test_the_preconditioned_matrix_is_that_of_adams_formula(quadratic, make):
    model, batches, hessian = quadratic
    groups = [{"params": model.parameters(), "lr": 0.01}]
    optimizer = make(groups, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.0)
    gradients = []
    for _ in range(3):
        optimizer.zero_grad()
        squared(model(batches[0][0]), batches[0][1]).mean().backward()
        gradients.append(model[1].weight.grad.flatten().numpy().copy())
        optimizer.step()
    second = sum(0.05 * 0.95 ** (2 - i) * g**2 for i, g in enumerate(gradients))
    diagonal = (1 - 0.8**3) * (np.sqrt(second / (1 - 0.95**3)) + 1e-3)
    exact = scipy.linalg.eigh(hessian, np.diag(diagonal), eigvals_only=True)[-1]
    result = training_curvature(model, batches, optimizer, loss=squared, tol=1e-9)
    assert result.matrix.tolist() == ["hessian", "preconditioned"]
    assert result.eigenvalue[1] == pytest.approx(exact, rel=1e-8)
    assert np.isnan(result.threshold[0])
    assert result.threshold[1] == pytest.approx(3.6 / 0.2 / 0.01)


def test_parameters_with_a_smaller_learning_rate_count_less(quadratic):
    _, batches, _ = quadratic
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2)).double()
    groups = [
        {"params": model[1].parameters(), "lr": 0.1},
        {"params": model[2].parameters(), "lr": 0.4},
    ]
    result = training_curvature(model, batches, torch.optim.SGD(groups), loss=squared, tol=1e-9)
    hessian = Products(Objective(model.eval(), batches, loss=squared))(
        torch.eye(23, dtype=torch.float64)
    ).numpy()
    ratio = np.sqrt(np.repeat([0.25, 1.0], [15, 8]))
    exact = np.linalg.eigvalsh(ratio[:, None] * hessian * ratio)[-1]
    assert result.eigenvalue[-1] == pytest.approx(exact, rel=1e-8)
    assert result.threshold[-1] == pytest.approx(2 / 0.4)


def test_gradient_descent_trains_at_the_edge_of_stability():
    generator = stream(0, "edge")
    images = torch.randn(64, 1, 4, 4, generator=generator).double()
    targets = (images[:, 0, 0, 0] * images[:, 0, 0, 1] > 0).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(),
            nn.Linear(16, 2),
        ).double()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(images, targets)]
    results = descend(model, batches, optimizer, 800, every=100)
    assert [result.step.tolist() for result in results] == [[n] for n in range(100, 801, 100)]
    assert all(result.threshold == 2 / 0.1 for result in results)
    eigenvalues = [result.eigenvalue[0] for result in results]
    assert eigenvalues[0] < 10  # progressive sharpening
    assert 18 < min(eigenvalues[4:]) <= max(eigenvalues[4:]) < 24  # the edge


def test_the_alignment_is_the_part_of_the_gradient_along_the_eigenvectors(quadratic):
    model, batches, hessian = quadratic
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values, vectors = np.linalg.eigh(hessian[:4, :4])
    minimum = torch.linalg.lstsq(
        batches[0][0].flatten(1), one_hot(batches[0][1], 2).double()
    ).solution.T
    for index, expected in ((3, 1.0), (0, 0.0)):
        with torch.no_grad():
            model[1].weight.copy_(minimum)
            model[1].weight[0] += torch.tensor(vectors[:, index])
        result = training_curvature(model, batches, optimizer, k=2, loss=squared, tol=1e-9)
        assert result.alignment[1] == pytest.approx(expected, abs=1e-6)  # two copies of each
        np.testing.assert_allclose(result.eigenvalue, values[3], rtol=1e-8)


def test_the_threshold_of_sam_is_that_of_its_linear_update():
    hessian, rho, rate = np.diag([4.0, 1.0]), 0.3, 0.2
    weights = np.array([0.5, 0.0])
    norm = np.linalg.norm(hessian @ weights)
    edge = sam_threshold(2 / rate, rho, norm)
    matrix = edge + rho / norm * edge**2  # of SAM's gradient at an eigenvector with this value
    assert abs(1 - rate * matrix) == pytest.approx(1)
    assert sam_threshold(2 / rate, 1e-9, norm) == pytest.approx(2 / rate, rel=1e-6)
    assert np.isnan(sam_threshold(10.0, rho, 0.0))


def test_the_perturbed_point_is_that_of_sam(network, images, classes):
    batches = [(images, classes)]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    result = training_curvature(network, batches, optimizer, sam_rho=0.4, tol=1e-8)
    objective = Objective(network, batches, batch_norm="batch")
    gradient = objective.gradient()
    moved = objective.unflatten(objective.theta + 0.4 * gradient / gradient.norm())
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(moved[name])
    there = training_curvature(network, batches, optimizer, tol=1e-8)
    assert result.point.tolist() == ["weights", "perturbed"]
    assert result.eigenvalue[1] == pytest.approx(there.eigenvalue[0], rel=1e-6)
    assert result.nll[1] == pytest.approx(there.nll[0], rel=1e-9)
    edge = sam_threshold(20.0, 0.4, float(gradient.norm()))
    np.testing.assert_allclose(result.threshold, edge)


def test_the_threshold_of_adam_is_38_over_the_learning_rate():
    """At beta1 = 0.9: Cohen et al. (2022), sec. 3."""
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.5)
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    rule = update_rule([optimizer], dict(layer.named_parameters()))
    assert rule.threshold == pytest.approx(38 / 0.5)


def test_frozen_parameters_do_not_count(quadratic):
    _, batches, _ = quadratic
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2)).double()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    result = training_curvature(model, batches, optimizer, loss=squared, tol=1e-9)
    hidden = model[1](batches[0][0].flatten(1)).detach()
    features = torch.cat([hidden, torch.ones(12, 1)], 1)
    exact = torch.linalg.eigvalsh(2 / 12 * features.T @ features)[-1]
    assert result.parameters == 8
    assert result.eigenvalue[0] == pytest.approx(float(exact), rel=1e-8)
