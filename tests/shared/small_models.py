"""Small models that several test files use."""

import torch
from torch import nn


def small_convnet(seed=0, width=4):
    """A convolution and BatchNorm with random weights that depend on the seed alone."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten())
