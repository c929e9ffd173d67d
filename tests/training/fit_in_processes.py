"""One run of training, alone or as a process of several; prints the weights' file."""

import sys
from functools import partial

import torch
from small_runs import feed_of, images_of_noise, network
from torch import nn

from visprism import Augmentation, Recipe, fit

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
    pixels, targets = images_of_noise(30)
    model = network(partial(nn.LayerNorm, 8), nn.ReLU)
    test = [(pixels / 255, targets)]
    feed = feed_of(RECIPE, pixels, targets)
    history = fit(model, feed, RECIPE, test=test, folder=folder)
    return model, history


if __name__ == "__main__":
    model, history = trained()
    torch.save((model.state_dict(), history.train_loss), sys.argv[1])
