"""Classifiers whose every decision is known."""

import numpy as np
import torch
from torch import nn

from visprism import Predictions, Provenance
from visprism.results import Outcomes


class Brightest(nn.Module):
    """Predicts the channel with the highest mean, more confidently the more it leads."""

    def forward(self, x):
        return 4 * x.mean((2, 3))


def outcomes_by_hand(confidence, correct, model=""):
    """Images of the first of two classes, classified with this confidence, right or not."""
    correct = np.asarray(correct, bool)
    n = len(correct)
    return Outcomes(
        target=np.zeros(n, int),
        predicted=np.where(correct, 0, 1),
        correct=correct,
        top5=np.ones(n, bool),
        confidence=np.broadcast_to(np.float32(confidence), n),
        nll=np.where(correct, 0.1, 2.0),
        brier=np.zeros(n),
        classes=2,
        provenance=Provenance(model=model, images=n),
    )


def random_predictions(n=400, k=7, *, scale=2.0, seed=0):
    """Logits, and targets that are drawn from their softmax."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, k, generator=generator)
    targets = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions(logits, targets)


def colors(*channels, level=1.0):
    """One image for each channel, which is bright in it."""
    images = torch.zeros(len(channels), 3, 4, 4)
    images[range(len(channels)), channels] = level
    return images


class Waves(nn.Module):
    """Tells whether there is more of a wave in the image than a little: class 1, or else 0."""

    def __init__(self, wave):
        super().__init__()
        self.register_buffer("wave", wave)

    def forward(self, x):
        strength = (x * self.wave).sum((2, 3)).abs().amax(1)
        return torch.stack([torch.full_like(strength, 0.5), strength], dim=1)
