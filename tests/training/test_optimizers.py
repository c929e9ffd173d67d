"""Laws of optimizers (src/visprism/training/optimizers.py)."""

from dataclasses import replace

import pytest
import torch
from internals import decay_groups, make_optimizers
from torch import nn

from visprism import Recipe

RECIPE = Recipe(epochs=3, batch_size=8, lr=0.05, weight_decay=0.1)


@pytest.fixture
def net():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    model.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
    model.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
    return model


def test_only_kernels_and_matrices_decay_or_all_parameters_as_in_the_paper(net):
    decays, rest = decay_groups(net.parameters(), RECIPE)
    assert [tuple(p.shape) for p in decays["params"]] == [(4, 3, 3, 3), (2, 16)]
    assert (decays["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert len(rest["params"]) == 6
    (group,) = decay_groups(net.parameters(), replace(RECIPE, decay_params="all"))
    assert len(group["params"]) == 8
    assert group["weight_decay"] == 0.1


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lamb"])
def test_decay_alone_shrinks_what_decays(net, optimizer):
    """With a gradient of zero a step is w - lr wd w, for what decays; Lamb scales it."""
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay=0.5)
    ((made, _),) = make_optimizers(net, recipe)
    before = [p.detach().clone() for p in net.parameters()]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    made.step()
    for old, new in zip(before, net.parameters(), strict=True):
        undecayed = old.squeeze().ndim < 2 or old.ndim == 3
        shrinks = (
            torch.zeros_like(old) if undecayed or optimizer == "lamb" else 0.05 * 0.5 * old
        )
        if undecayed or optimizer != "lamb":
            torch.testing.assert_close(new, old - shrinks)
        else:
            assert new.norm() < old.norm()


def test_muon_moves_only_the_matrices_inside_of_blocks():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), nn.Linear(4, 2))
    (adamw, _), (muon, _) = make_optimizers(model, replace(RECIPE, optimizer="muon"))
    moved = [p for group in muon.param_groups for p in group["params"]]
    assert [p is model[0][0].weight for p in moved] == [True]
    others = [p for group in adamw.param_groups for p in group["params"]]
    assert len(moved) + len(others) == len(list(model.parameters()))
