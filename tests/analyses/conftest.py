"""A tiny network for the images of `shapes`, and checkpoints of it."""

import pytest
import torch
from torch import nn

from visprism import Preprocessing, save_checkpoint

WAY = Preprocessing((32, 32), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@pytest.fixture(scope="package")
def network():
    """`network(seed)`: two convolutions, one with BatchNorm, and the logits of ten classes."""

    def network(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers = nn.Conv2d(3, 6, 5, stride=4), nn.BatchNorm2d(6), nn.GELU()
            second = nn.Conv2d(6, 6, 3, padding=1), nn.GELU()
            head = nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 10)
            return nn.Sequential(*layers, *second, *head).eval()

    return network


@pytest.fixture(scope="package")
def checkpoint(network, tmp_path_factory):
    """`checkpoint(seed, name)`: a file with the weights of `network(seed)`."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def checkpoint(seed, name=None):
        path = folder / (name or f"seed{seed}.safetensors")
        path.parent.mkdir(exist_ok=True)
        save_checkpoint(network(seed), path)
        return path

    return checkpoint


@pytest.fixture(scope="package")
def measured(network):
    """`measured(analysis, option=...)`: the results of one analysis on images of `shapes`."""

    from visprism import examine

    def measured(analysis, *, model=0, limit=16, data="shapes", **options):
        study = examine(
            {"net": network(model)},
            data,
            analyses=[analysis],
            options={analysis: options},
            preprocessing=WAY,
            limit=limit,
            batch_size=8,
            minutes=None,
            on_error="raise",
        )
        assert not study.failures, study.failures
        return study["net"].results(analysis)

    return measured
