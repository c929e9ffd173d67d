"""Small runs of training, for tests and for the programs that they start."""

import torch
from torch import nn

from visprism import Feed, Preprocessing

PLAIN = Preprocessing((4, 4), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def images_of_noise(number):
    """Pixels, and the classes 0 and 1 in turn."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 255, (number, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return pixels, torch.arange(number) % 2


def feed_of(recipe, pixels, targets, *, classes=2, seed=0, kind=Feed):
    return kind(
        pixels,
        targets,
        num_classes=classes,
        batch_size=recipe.batch_size,
        augmentation=recipe.augmentation,
        preprocessing=PLAIN,
        seed=seed,
    )


def network(*inner):
    """Two linear layers, and what stands between."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(48, 8), *(make() for make in inner), nn.Linear(8, 2)
        return nn.Sequential(nn.Flatten(), *layers)
