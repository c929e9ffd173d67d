"""Gradients of models with shared, tied and checkpointed parts are those of autograd."""

import pytest
import torch
from torch.nn import functional
from unusual_modules import built

from visprism import Objective, dissect, receptive_field


@pytest.mark.parametrize("name", ["shared block", "checkpointed block"])
def test_the_gradient_is_that_of_autograd(name):
    model, generator = built(name).double(), torch.Generator().manual_seed(0)
    images = torch.randn(4, 3, 16, 16, generator=generator, dtype=torch.float64)
    targets = torch.arange(4)
    ours = Objective(model, [(images, targets)]).gradient()
    functional.cross_entropy(model(images), targets).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(ours, expected)


def test_a_checkpointed_block_has_the_receptive_field_of_its_convolution():
    anatomy = dissect(built("checkpointed block"), torch.randn(2, 3, 16, 16))
    result, *_ = receptive_field(anatomy, [torch.randn(4, 3, 16, 16)])
    assert "blocks.0.block" in set(result.block)
