"""Predictions in each process of test_predict.py; as a script it is the process of rank 1."""

import sys

import torch
from torch import nn

from visprism import predict, processes

IMAGES = (14, 4)  # in batches of four, and in one, so that a rank has none
SAMPLES = (1, 3)


class Network(nn.Sequential):
    """A classifier with dropout, of fixed weights."""

    def __init__(self):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__(
                nn.Flatten(),
                nn.Linear(48, 16),
                nn.BatchNorm1d(16),
                nn.Dropout(),
                nn.Linear(16, 5),
            )
        self.eval()


def images(number):
    return torch.randn(number, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def predicted():
    """Logits and targets for each number of images and samples."""
    results = []
    with processes():
        for number in IMAGES:
            pairs = images(number).split(4), (torch.arange(number) % 5).split(4)
            batches = list(zip(*pairs, strict=True))
            for samples in SAMPLES:
                predictions = predict(Network(), batches, samples=samples)
                results.append(
                    (predictions.logits, predictions.targets, predictions.provenance.images)
                )
    return results


if __name__ == "__main__":
    torch.save(predicted(), sys.argv[1])
