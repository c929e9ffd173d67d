"""Laws of several runs in one job, and of what the loss does not reach (engine.py)."""

import runpy
from pathlib import Path

import pytest
import torch
from internals import has_unused_parameters, world_size
from torch import nn
from two_processes import in_two_processes

SCRIPT = Path(__file__).with_name("fit_repeatedly.py")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.mark.slow
def test_runs_after_one_another_in_two_processes_are_those_of_one(tmp_path, script):
    """Sharded or not, after an error, and with parameters that the loss does not reach."""
    target = tmp_path / "other.pt"
    ours, said = in_two_processes(SCRIPT, target, lambda: script["everything"](tmp_path / "0"))
    theirs, _ = torch.load(target)
    assert "got step 7 in process 0 and step 0 in process 1" in said
    assert world_size() == 1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    for state, spare in zip(ours, (True, True, False, True, True), strict=True):
        alone = script["trained"](spare=spare)
        torch.testing.assert_close(state, alone, rtol=0, atol=1e-5)


def test_what_a_loss_does_not_reach_is_found_and_nothing_is_changed():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
    assert not has_unused_parameters(model, lambda: model(x))
    model.spare = nn.Linear(1, 1)
    assert has_unused_parameters(model, lambda: model[1](model[0](x)))
    model.spare.requires_grad_(False)
    assert not has_unused_parameters(model, lambda: model[1](model[0](x)))
    after = {name: tensor for name, tensor in model.state_dict().items() if name in before}
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())
