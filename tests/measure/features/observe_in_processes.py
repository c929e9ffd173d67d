"""What each process of test_processes.py does; started alone, it is the process of rank 1."""

import sys
from pathlib import Path

import torch
from torch import nn

from visprism.anatomy import dissect
from visprism.measure.features import FourierProbe, VarianceProbe, observe
from visprism.parallel import processes

IMAGES = (7, 2)  # in batches of two: four batches, then one, so that a rank has none


def observed():
    """The results for each number of images, one after the other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
        )
        model.eval().double()
        x = torch.randn(max(IMAGES), 3, 8, 8, dtype=torch.float64)
    probes = [FourierProbe(), VarianceProbe()]
    with processes():
        anatomy = dissect(model, x)
        return [observe(anatomy, x[:n].split(2), probes) for n in IMAGES]


if __name__ == "__main__":
    for n, results in zip(IMAGES, observed(), strict=True):
        for result in results:
            result.save(Path(sys.argv[1]) / f"{type(result).__name__}-{n}.npz")
