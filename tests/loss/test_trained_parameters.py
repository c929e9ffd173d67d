"""Parameters of curvature: those that are trained, and that the outputs depend on."""

import pytest
import torch
from torch import nn

import visprism as vp
from visprism.loss.objective import Objective


def probe():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, 4, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()
    network[0].requires_grad_(False)
    return network, [(torch.randn(16, 3, 16, 16), torch.randint(0, 5, (16,)))]


def test_frozen_parameters_are_left_out_unless_they_are_asked_for():
    network, batches = probe()
    trained, every = Objective(network, batches), Objective(network, batches, parameters="all")
    assert trained.names == ("4.weight", "4.bias")
    assert len(every.names) == 4
    own = torch.autograd.functional.hessian(
        lambda theta: nn.functional.cross_entropy(
            network[:4](batches[0][0]) @ theta[:40].view(5, 8).T + theta[40:], batches[0][1]
        ),
        torch.cat([p.flatten() for p in network[4].parameters()]),
    )
    eigenvalues = torch.linalg.eigvalsh(own)
    spectrum = vp.hessian_spectrum(network, batches, k=1, which="LA")
    assert spectrum.value[0] == pytest.approx(float(eigenvalues[-1]), rel=1e-4)
    assert vp.hessian_spectrum(network, batches, k=1, which="SA").value[0] > -1e-5
    network.requires_grad_(False)  # for evaluation: all parameters are meant
    assert len(Objective(network, batches).names) == 4


def test_the_plan_says_which_parameters():
    network, batches = probe()
    seen = []
    vp.examine({"m": network}, batches, analyses=["hessian"], listener=seen.append)
    (planned,) = (event for event in seen if isinstance(event, vp.Planned))
    assert "45 of 269 parameters" in " ".join(planned.preparation)


class Copied(nn.Module):
    """A linear layer whose forward pass reads a copy of the weight."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 3)
        self.copy = self.fc.weight.detach().clone()

    def forward(self, x):
        return x.mean((2, 3)).repeat(1, 4) @ self.copy.T


@pytest.mark.parametrize("analysis", ["hessian", "landscape"])
def test_weights_that_do_not_move_the_outputs_are_refused(analysis):
    torch.manual_seed(0)
    batches = [(torch.randn(16, 3, 4, 4), torch.randint(0, 3, (16,)))]
    study = vp.examine({"m": Copied().eval()}, batches, analyses=[analysis])
    (failure,) = study.failures
    assert "copies of its weights" in failure.reason


def test_data_parallel_models_are_what_they_wrap():
    network, batches = probe()
    wrapped = nn.DataParallel(network)
    assert [b.name for b in vp.dissect(wrapped, batches[0][0])] == [
        b.name for b in vp.dissect(network, batches[0][0])
    ]
    first, other = (vp.predict(model, batches) for model in (wrapped, network))
    assert torch.equal(first.logits, other.logits)
    assert vp.Variance()(wrapped, batches).variance.tolist() == (
        vp.Variance()(network, batches).variance.tolist()
    )
