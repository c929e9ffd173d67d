"""Laws of the objective and its products (src/visprism/loss/)."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from unusual_modules import built

from visprism import Objective, ReceptiveField, dissect
from visprism.core.run import stream
from visprism.loss.products import Products, hvp


def dense(model, images, targets, names=None):
    """Hessian of the mean cross-entropy by torch.autograd alone, in the model's own order."""
    parameters = dict(model.named_parameters())
    names = list(parameters) if names is None else names
    theta = torch.cat([parameters[n].detach().flatten() for n in names])

    def loss(theta):
        chunks = theta.split([parameters[n].numel() for n in names])
        chosen = {n: c.view_as(parameters[n]) for n, c in zip(names, chunks, strict=True)}
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            logits = torch.func.functional_call(model, chosen, (images,))
        return functional.cross_entropy(logits, targets)

    return torch.autograd.functional.hessian(loss, theta)


def matrix(objective):
    """All of an objective's Hessian, a product for each column."""
    products = Products(objective)
    return products(torch.eye(len(objective), dtype=torch.float64))


def test_softmax_regression_has_its_textbook_hessian(regression, images, classes):
    x = torch.cat([images.flatten(1), torch.ones(10, 1)], 1).double()
    p = regression(images).softmax(1)
    weights = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    exact = torch.einsum("nkl,ni,nj->kilj", weights, x, x) / 10  # class k's weights, its bias
    objective = Objective(regression, [(images, classes)])
    ours = matrix(objective)
    at = [*range(216), *range(216, 219)]
    order = [k * 73 + i for k in range(3) for i in range(72)] + [k * 73 + 72 for k in range(3)]
    np.testing.assert_allclose(
        ours[at][:, at], exact.reshape(219, 219)[order][:, order].detach(), atol=1e-12
    )


@pytest.mark.parametrize(
    ("network", "targets"),
    [("convolutional", "soft"), ("attention", "classes")],
    indirect=["network"],
)
def test_the_hessian_is_that_of_autograd(network, images, targets, request):
    targets = request.getfixturevalue(targets)
    ours = matrix(Objective(network, [(images, targets)]))
    exact = dense(network, images, targets)
    np.testing.assert_allclose(ours, exact, atol=1e-8 * float(exact.abs().max()))


def test_the_objective_multiplies_one_vector_or_several(convolutional, images, classes):
    objective = Objective(convolutional, [(images, classes)], weight_decay=0.1)
    V = torch.randn(2, 2, len(objective), generator=stream(0, "V")).double()
    each = torch.stack([hvp(objective, v) for v in V.flatten(0, 1)])
    np.testing.assert_allclose(hvp(objective, V).flatten(0, 1), each, atol=1e-9)


def test_weight_decay_shifts_the_hessian_where_parameters_decay(network, images, classes):
    batches = [(images, classes)]
    plain = Objective(network, batches)
    V = torch.randn(5, len(plain), generator=stream(0, "V")).double()
    ones = [
        torch.full((p.numel(),), n.endswith("weight")) for n, p in network.named_parameters()
    ]
    for decayed, decays in (("all", 1), ("*weight", torch.cat(ones))):
        shifted = Objective(network, batches, weight_decay=0.3, decayed=decayed)
        np.testing.assert_allclose(
            hvp(shifted, V), hvp(plain, V) + 0.3 * V * decays, atol=1e-11
        )


def test_value_is_the_mean_loss_and_half_the_decayed_square(convolutional, images, classes):
    objective = Objective(convolutional, [(images, classes)], weight_decay=0.1)
    nll = functional.cross_entropy(convolutional(images), classes).detach()
    square = sum(float((p.detach() ** 2).sum()) for p in convolutional.parameters())
    assert objective.nll() == pytest.approx(float(nll), rel=1e-12)
    assert objective.l2() == pytest.approx(0.05 * square, rel=1e-12)
    assert objective.value() == pytest.approx(float(nll) + 0.05 * square, rel=1e-12)


def test_the_gradient_is_that_of_differences(network, images, classes):
    objective = Objective(network, [(images, classes)], weight_decay=0.1)
    direction = torch.randn(len(objective), generator=stream(0, "direction")).double()
    step = 1e-5 * direction
    rise = objective.value(objective.theta + step) - objective.value(objective.theta - step)
    assert float(objective.gradient() @ direction) == pytest.approx(rise / 2e-5, rel=1e-6)


def test_products_are_those_of_the_data_however_it_is_cut(network, images, classes):
    uncut = Objective(network, [(images, classes)])
    cut = Objective(network, list(zip(images.split(4), classes.split(4), strict=True)))
    v = torch.randn(len(uncut), generator=stream(0, "v")).double()
    np.testing.assert_allclose(hvp(cut, v), hvp(uncut, v), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cut.gradient(), uncut.gradient(), rtol=1e-9, atol=1e-12)


def test_graphs_that_are_not_kept_give_the_same_products(network, images, classes, monkeypatch):
    batches = list(zip(images.split(3), classes.split(3), strict=True))
    stored = Products(Objective(network, batches))
    monkeypatch.setattr("visprism.loss.products._MEMORY_SHARE", 0.0)
    anew = Products(Objective(network, batches))
    V = torch.randn(2, len(stored.objective), generator=stream(0, "v")).double()
    for _ in range(2):
        assert torch.equal(stored(V), anew(V))
    nll = float(functional.cross_entropy(network(images), classes).detach())
    assert anew.nll_and_examples == (pytest.approx(nll, rel=1e-12), 10)
    assert anew.batch_size == 3


def test_batch_statistics_are_those_of_training_mode(convolutional, images, classes):
    objective = Objective(convolutional, [(images, classes)], batch_norm="batch")
    training = copy.deepcopy(convolutional).train()
    loss = functional.cross_entropy(training(images), classes).detach()
    assert objective.nll() == pytest.approx(float(loss), rel=1e-12)


def test_a_selection_gives_the_corresponding_part_of_the_hessian(network, images, classes):
    names = [n for n, _ in network.named_parameters()]
    part = Objective(network, [(images, classes)], parameters="*.bias")
    chosen = [n for n in names if n.endswith(".bias")]
    assert list(part.names) == chosen
    np.testing.assert_allclose(
        matrix(part), dense(network, images, classes, chosen), atol=1e-10
    )


def test_blocks_stages_and_kinds_can_be_chosen(convolutional, images, classes):
    network = convolutional
    anatomy = dissect(network, images)
    batches = [(images, classes)]
    by_stage = [
        set(Objective(network, batches, parameters=f"stage:{stage}").names)
        for stage in {block.stage for block in anatomy}
    ]
    everything = [name for name, _ in network.named_parameters()]
    assert sorted(name for names in by_stage for name in names) == sorted(everything)
    block = next(block for block in anatomy if block.parameters)
    assert set(Objective(network, batches, parameters=block).names) == set(block.parameters)
    named = Objective(network, batches, parameters=f"block:{block.name}")
    assert set(named.names) == set(block.parameters)
    kind = Objective(network, batches, parameters=f"kind:{block.kind}")
    assert set(block.parameters) <= set(kind.names)


def test_the_hessian_is_zero_along_a_parameter_that_nothing_uses(regression, images, classes):
    regression.unused = nn.Parameter(torch.ones(4).double())
    objective = Objective(regression, [(images, classes)])
    place = objective.unflatten(torch.arange(len(objective)).double())["unused"].long()
    v = torch.zeros_like(objective.theta)
    v[place] = 1
    assert (hvp(objective, v) == 0).all()


@pytest.mark.parametrize("name", ["shared block", "tied weights", "checkpointed block"])
def test_the_gradient_of_an_unusual_network_is_that_of_autograd(name):
    model, targets = built(name).double(), torch.arange(4)
    images = torch.randn(4, 3, 16, 16, generator=stream(0, "images")).double()
    ours = Objective(model, [(images, targets)]).gradient()
    functional.cross_entropy(model(images), targets).backward()
    torch.testing.assert_close(ours, torch.cat([p.grad.flatten() for p in model.parameters()]))


def test_a_checkpointed_block_has_the_receptive_field_of_its_convolution():
    anatomy = dissect(built("checkpointed block"), torch.randn(2, 3, 16, 16))
    result, *_ = ReceptiveField().of(anatomy, [torch.randn(4, 3, 16, 16)])
    assert "blocks.0.block" in set(result.block)
