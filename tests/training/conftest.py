"""Images of which one half is bright: which one, a linear map can tell; and small models."""

import pytest
import torch
from small_runs import feed_of, network
from torch import nn

from visprism import Augmentation, Recipe


@pytest.fixture(scope="session")
def recipe():
    return Recipe(epochs=3, batch_size=8, lr=0.05, warmup=0.5)


@pytest.fixture(scope="session")
def mixed():
    """Settings under which every draw of the data side is made."""
    return Augmentation(padding=1, flip=0.5, mixup=1.0, cutmix=0.8, smoothing=0.1)


@pytest.fixture(scope="session")
def make_images():
    def make():
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(0, 60, (44, 3, 4, 4), generator=generator, dtype=torch.uint8)
        targets = torch.arange(44) % 2
        for half in (0, 1):
            images[targets == half, :, :, 2 * half : 2 * half + 2] += 150
        return images, targets

    return make


@pytest.fixture(scope="session")
def test_batches(make_images):
    images, targets = make_images()
    return [(images / 255, targets)]


@pytest.fixture(scope="session")
def make_feed(make_images):
    def make(recipe, *data):
        return feed_of(recipe, *(data or make_images()), seed=recipe.seed)

    return make


@pytest.fixture(scope="session")
def make_model():
    return lambda *inner: network(*(lambda layer=layer: layer for layer in inner), nn.ReLU)


@pytest.fixture
def model(make_model):
    return make_model().eval()
