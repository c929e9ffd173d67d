"""A small network and images, for real trainers."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from visprism import Monitor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = nn.functional.dropout(self.norm(self.conv(x)).relu(), 0.1, self.training)
        return self.head(x.mean((2, 3)))


def drawn(seed, n):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, 8, 8, generator=generator), torch.arange(n) % 4


@pytest.fixture
def network():
    return Net()


@pytest.fixture
def train_set():
    return TensorDataset(*drawn(2, 32))


@pytest.fixture
def loader(train_set):
    return lambda: DataLoader(train_set, batch_size=8, shuffle=True)


@pytest.fixture
def images():
    return [drawn(1, 16)]


@pytest.fixture
def monitor(tmp_path, images):
    analyses = ("variance", "calibration", "training-curvature")
    return Monitor(images, analyses, every=2, share=1.0, out=tmp_path / "visprism")


@pytest.fixture
def brief(tmp_path, images):
    """Of the analysis that takes the least time."""
    return Monitor(images, "calibration", every=2, share=1.0, out=tmp_path / "visprism")
