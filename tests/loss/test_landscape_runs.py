"""Interrupted landscapes, and their errors (src/visprism/loss/)."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import Run, TimeBudgetError, landscape, plane_along

# Contracts and errors.


def test_losses_that_are_not_finite_are_kept_and_told(batches):
    class Exploding(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 3))

        def forward(self, x):
            big = torch.where(self.w.sum() > 15.0, float("inf"), 1.0)
            return (x.mean((2, 3)) @ self.w.T) * big

    model = Exploding().eval()
    plane = plane_along(model, {"w": torch.ones(5, 3)}, points=3)
    surface = landscape(model, batches, [plane])
    assert np.isfinite(surface.nll).tolist() == [True, True, False]
    assert "the NLL is not finite at 1 of 3 points" in map(str, surface.findings())


def test_a_deadline_ends_it_between_two_batches(small, batches):
    state = {n: t.clone() for n, t in small.state_dict().items()}
    with pytest.raises(TimeBudgetError, match="time budget"):
        landscape(small, batches, run=Run(deadline=0.0))
    assert all(torch.equal(t, state[n]) for n, t in small.state_dict().items())
