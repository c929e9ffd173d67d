"""What each process of test_processes.py does; started alone, it is the process of rank 1."""

import sys
from pathlib import Path

import torch
from torch import nn

from visprism import CKA, Fourier, Variance, compare, dissect, processes
from visprism.passes.features import observations

# In batches of four: four, the last of which is too small for CKA; then one, so that a rank has
# none.
IMAGES = (14, 4)
BATCH = 4


def observed():
    """The results for each number of images, one after the other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        )
        model.eval().double()
        x = torch.randn(max(IMAGES), 3, 8, 8, dtype=torch.float64)
    analyses = [Fourier(), Variance(), CKA()]
    with processes():
        anatomy = dissect(model, x)
        results = []
        for n in IMAGES:
            batches, mirrored = (images[:n].split(BATCH) for images in (x, x.flip(3)))
            comparison = compare(anatomy, anatomy, batches, mirrored)
            results.append({"comparison": comparison})
            for measured in observations(anatomy, batches, analyses):
                results[-1] |= {type(result).__name__: result for result in measured}
        return results


if __name__ == "__main__":
    for n, results in zip(IMAGES, observed(), strict=True):
        for name, result in results.items():
            result.save(Path(sys.argv[1]) / f"{name}-{n}.npz")
