"""One run of training, alone or as a process of several; prints the weights' file."""

import sys

import torch
from torch import nn

from visprism import Augmentation, Preprocessing, Recipe, fit
from visprism.images import Feed

RECIPE = Recipe(
    epochs=2,
    batch_size=9,  # unequal parts: 5 and 4 images, and 2 and 1 of the last batch
    lr=0.05,
    augmentation=Augmentation(padding=1, flip=0.5, mixup=1.0, cutmix=0.8, smoothing=0.1),
    clip=0.5,
    ema=0.5,
    sam_rho=0.05,
)


def trained(folder=None):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (30, 3, 4, 4), generator=generator, dtype=torch.uint8)
    plain = Preprocessing((4, 4), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    feed = Feed(
        images,
        torch.arange(30) % 2,
        num_classes=2,
        batch_size=9,
        augmentation=RECIPE.augmentation,
        preprocessing=plain,
        seed=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(48, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)
        )
    test = [(images / 255, torch.arange(30) % 2)]
    history = fit(model, feed, RECIPE, test=test, folder=folder)
    return model, history


if __name__ == "__main__":
    model, history = trained()
    torch.save((model.state_dict(), history.train_loss), sys.argv[1])
