"""A small study, run by a process that is killed."""

import torch
from torch import nn

from visprism import examine

ANALYSES = ["variance", "cka", "calibration", "hessian"]


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


def study_in(folder):
    """The study of two networks on 24 images, without a limit of time."""
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(24, 3, 8, 8, generator=generator)
    targets = torch.randint(5, (24,), generator=generator)
    return examine(
        {"a": Net(0).eval(), "b": Net(1).eval()},
        list(zip(images.split(8), targets.split(8), strict=True)),
        analyses=ANALYSES,
        minutes=None,
        out=folder,
    )


def begin(begun, folder):
    torch.set_num_threads(1)
    begun.set()
    study_in(folder)
