"""A small network, images and losses that the tests of loss landscapes share."""

import torch
from torch import nn


def squares(logits, targets):
    """Half the squared error of each example: a loss whose landscape is a parabola."""
    return ((logits - targets) ** 2).sum(1) / 2


class Small(nn.Sequential):
    """Convolutions and their norms, with statistics as training leaves them."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )


def random_images(n, side=8, classes=5):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(n, 3, side, side, generator=generator)
    return images, torch.randint(classes, (n,), generator=generator)


def trained(model, images):
    """With weights of a fixed draw, and running statistics of these images."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator) + (p.ndim < 2))
        model.train()
        for _ in range(30):
            model(images)
    return model.eval()


def least_squares():
    """A linear model, and a batch of images with numbers as targets."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    images = torch.randn(7, 3, 2, 2, generator=generator, dtype=torch.float64)
    return model, [(images, torch.randn(7, 2, generator=generator, dtype=torch.float64))]
