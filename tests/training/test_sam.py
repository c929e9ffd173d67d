"""Laws of sharpness-aware minimization (src/visprism/training/optimizers.py)."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from visprism import fit
from visprism.loss.update_rules import sam_step


def test_where_the_gradient_is_zero_nothing_moves():
    (step,) = sam_step([torch.ones(3)], [torch.zeros(3)], 0.1, adaptive=False)
    assert step.tolist() == [0, 0, 0]


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_step_of_fit_is_sams(make_model, make_feed, make_images, recipe, adaptive):
    """With SGD, w - lr grad L(w + d): two gradients and one step, written out."""
    recipe = replace(
        recipe, epochs=1, batch_size=44, optimizer="sgd", momentum=0.0, weight_decay=0.0,
        warmup=0.0, sam_rho=0.1, adaptive=adaptive,
    )  # fmt: skip
    model, twin = make_model(), make_model()
    images, targets = make_images()
    parameters = list(twin.parameters())

    def gradient():
        loss = nn.functional.cross_entropy(twin(images / 255), targets)
        return torch.autograd.grad(loss, parameters)

    before = [p.detach().clone() for p in parameters]
    scales = [p.abs() + 0.01 if adaptive else 1.0 for p in before]  # ASAM, in units of weights
    scaled = [t * g for t, g in zip(scales, gradient(), strict=True)]
    length = torch.sqrt(sum((g**2).sum() for g in scaled))
    with torch.no_grad():
        for p, t, g in zip(parameters, scales, scaled, strict=True):
            p += 0.1 * t * g / length
    second = gradient()
    fit(model, make_feed(recipe), recipe)
    for new, old, g in zip(model.parameters(), before, second, strict=True):
        torch.testing.assert_close(new, old - 0.05 * g)


def test_running_statistics_are_those_of_the_first_pass_alone(make_model, make_feed, recipe):
    # A learning rate next to 0: then both runs see the same weights.
    recipe = replace(recipe, lr=1e-30, weight_decay=0.0)
    plain, sharp = make_model(nn.BatchNorm1d(8)), make_model(nn.BatchNorm1d(8))
    fit(plain, make_feed(recipe), recipe)
    fit(sharp, make_feed(recipe), replace(recipe, sam_rho=0.5))
    buffers = (dict(model[2].named_buffers()) for model in (plain, sharp))
    torch.testing.assert_close(*buffers, rtol=0, atol=0)
    assert plain[2].running_mean.abs().max() > 0
