"""Predictions that need no model."""

import pytest
import torch
from classifiers_by_hand import outcomes_by_hand

from visprism import Predictions


@pytest.fixture
def by_hand():
    """`by_hand([0.9, 1.0], [1, 0])`: images of two classes, right or not."""

    return outcomes_by_hand


@pytest.fixture
def random_predictions():
    """`drawn(n, k)`: logits, and targets that are drawn from their softmax."""

    def make(n=400, k=7, *, scale=2.0, members=1, seed=0):
        generator = torch.Generator().manual_seed(seed)
        logits = scale * torch.randn(members, n, k, generator=generator)
        chances = logits.softmax(-1).mean(0)
        targets = torch.multinomial(chances, 1, generator=generator)[:, 0]
        return Predictions(logits if members > 1 else logits[0], targets)

    return make
