"""Models, pixels and attacks that the tests of adversarial perturbations share."""

import torch
from internals import PixelSpace, attack_images
from torch import nn

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.5)
SPACE = PixelSpace(MEAN, STD)


def unnormalized(images):
    """The pixels of normalized images, without the check of their range."""
    mean, std = (torch.tensor(v).to(images)[:, None, None] for v in (MEAN, STD))
    return images * std + mean


class Linear(nn.Module):
    """Logits (w x - 1000, 0) of the pixels, so that the NLL of class 1 rounds to 0."""

    def __init__(self, shape=(3, 8, 8)):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.w = nn.Parameter(torch.randn(shape, generator=generator).double())

    def forward(self, x):
        score = (unnormalized(x) * self.w).sum((1, 2, 3)) - 1000  # class 1 for all
        return torch.stack([score, torch.zeros_like(score)], dim=1)


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


def score(model, pixels):
    return model(SPACE.normalized(pixels))[:, 0]
