"""What each process of test_processes.py does; started alone, it is the process of rank 1."""

import sys
from pathlib import Path

import torch
from torch import nn

from visprism import MonteCarloDropout, compare, dissect, outcomes, predict, processes

# In batches of four: four, the last of which is too small for CKA; then one, so that a rank has
# none.
IMAGES = (14, 4)
BATCH = 4


def observed():
    """The results for each number of images, one after the other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        convolutions = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
        head = nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(256, 10)
        model = nn.Sequential(*convolutions, *head).eval().double()
        x = torch.randn(max(IMAGES), 3, 8, 8, dtype=torch.float64)
    targets = torch.arange(max(IMAGES)) % 10
    with processes():
        anatomy = dissect(model, x)
        results = []
        for n in IMAGES:
            batches, mirrored = (images[:n].split(BATCH) for images in (x, x.flip(3)))
            labeled = list(zip(batches, targets[:n].split(BATCH), strict=True))
            drawn = predict(MonteCarloDropout(model, 3), labeled)
            comparison = compare(anatomy, anatomy, batches, mirrored)
            results.append({"comparison": comparison, "outcomes": outcomes(drawn)})
        return results


if __name__ == "__main__":
    for n, results in zip(IMAGES, observed(), strict=True):
        for name, result in results.items():
            result.save(Path(sys.argv[1]) / f"{name}-{n}.npz")
