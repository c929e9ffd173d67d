"""What each process of the test does; started alone, it is the process of rank 1."""

import sys
from pathlib import Path

import torch
from torch import nn

import visprism as vp


def measured():
    """Results that all processes share the work for: of three batches, and of a single one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 5)
        )
        model = model.double().eval()
        images = torch.randn(10, 3, 8, 8).double()
    targets = torch.arange(10) % 5
    results = []
    for size in (4, 10):
        batches = list(zip(images.split(size), targets.split(size), strict=True))
        with vp.processes():
            objective = vp.Objective(model, batches, weight_decay=0.1)
            results += [
                vp.hessian_spectrum(model, batches, k=2, tol=1e-6),
                vp.top_eigenvalues(objective, k=3, tol=1e-8),
                vp.spectral_density(objective, runs=2, steps=6),
                vp.landscape(model, batches, vp.random_planes(model, points=3, pairs=2)),
            ]
    return results


if __name__ == "__main__":
    for number, result in enumerate(measured()):
        result.save(Path(sys.argv[1]) / f"theirs{number}.npz")
