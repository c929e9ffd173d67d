"""A small study, run by tests as a program: to be killed, or by two processes.

python examine_in_processes.py FOLDER
"""

import sys
from pathlib import Path

import torch
from torch import nn

from visprism import examine, processes

ANALYSES = ["fourier", "variance", "cka", "calibration", "hessian", "sharpness"]


class Net(nn.Module):
    """A convolution, a residual block and logits."""

    def __init__(self, seed):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.stem = nn.Conv2d(3, 6, 3, padding=1)
            self.block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU())
            self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.block(x)).mean((2, 3)))


def study_in(folder, analyses=ANALYSES):
    """The study of two networks on forty images, without a limit of time."""
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(40, 3, 16, 16, generator=generator)
    targets = torch.randint(5, (40,), generator=generator)
    return examine(
        {"a": Net(0).eval(), "b": Net(1).eval()},
        list(zip(images.split(8), targets.split(8), strict=True)),
        analyses=analyses,
        minutes=None,
        out=folder,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "BEGUN" in globals():  # run by `runpy`, with a folder and an event
        globals()["BEGUN"].set()
        study_in(globals()["FOLDER"])
    else:
        with processes():
            study_in(Path(sys.argv[1]))
