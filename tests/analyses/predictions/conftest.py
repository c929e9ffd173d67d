"""Predictions that need no model."""

import numpy as np
import pytest
import torch

from visprism import Predictions
from visprism.results import Outcomes


@pytest.fixture
def by_hand():
    """`by_hand([0.9, 1.0], [1, 0])`: images of two classes, right or not."""

    def make(confidence, correct, *, classes=2):
        confidence = np.array(confidence, np.float32)
        correct = np.array(correct, bool)
        n = len(confidence)
        target = np.zeros(n, np.int64)
        return Outcomes(
            target=target,
            predicted=np.where(correct, target, 1),
            correct=correct,
            top5=np.ones(n, bool),
            confidence=confidence,
            nll=np.zeros(n),
            brier=np.zeros(n),
            classes=classes,
        )

    return make


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
