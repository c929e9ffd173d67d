"""What each process of the test does; started alone, it is the process of rank 1."""

import sys
from pathlib import Path

import torch
from torch import nn

from visprism import landscape, processes, random_planes


def surface(folder):
    """A landscape that all processes share."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
        ).eval()
        images = torch.randn(10, 3, 8, 8)
    with processes():
        planes = random_planes(model, points=3, pairs=2)
        batches = [(images, torch.arange(10) % 5)]
        return landscape(model, batches, planes, resume=folder / "part")


if __name__ == "__main__":
    surface(Path(sys.argv[1])).save(Path(sys.argv[1]) / "theirs.npz")
