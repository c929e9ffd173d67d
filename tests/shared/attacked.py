"""Models, pixels and attacks that the tests of adversarial perturbations share."""

import torch
from torch import nn

from visprism.analyses.predictions.attacks import attack_images
from visprism.passes.perturbed import PixelSpace

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.5)
SPACE = PixelSpace(MEAN, STD)


def small_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(32, 4),
        ).eval()  # fmt: skip


def gray(number=5, size=8, channels=3):
    """Pixels far from 0 and 1, with targets 1."""
    generator = torch.Generator().manual_seed(1)
    pixels = 0.3 + 0.4 * torch.rand(number, channels, size, size, generator=generator)
    return pixels.double(), torch.ones(number, dtype=torch.long)


def attacked(*arguments, **options):
    return attack_images(*arguments, **options).pixels


def predicted(model, pixels):
    with torch.no_grad():
        return model(SPACE.normalized(pixels)).argmax(1)
