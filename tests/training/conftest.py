"""Images of which one half is bright: which one, a linear map can tell; and small models."""

import pytest
import torch
from small_runs import feed_of
from torch import nn

from visprism import Augmentation, Recipe


def _images(count=44):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 60, (count, 3, 4, 4), generator=generator, dtype=torch.uint8)
    targets = torch.arange(count) % 2
    for half in (0, 1):
        images[targets == half, :, :, 2 * half : 2 * half + 2] += 150
    return images, targets


def _feed(recipe, images=None, targets=None, classes=2):
    if images is None:
        images, targets = _images()
    return feed_of(recipe, images, targets, classes=classes, seed=recipe.seed)


def _model(*inner):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(48, 8), *inner, nn.ReLU(), nn.Linear(8, 2)
        ).eval()


@pytest.fixture(scope="session")
def recipe():
    return Recipe(epochs=3, batch_size=8, lr=0.05, warmup=0.5)


@pytest.fixture
def model():
    return _model()


@pytest.fixture(scope="session")
def test_batches():
    images, targets = _images()
    return [(images / 255, targets)]


@pytest.fixture(scope="session")
def mixed():
    """Settings under which every draw of the data side is made."""
    return Augmentation(padding=1, flip=0.5, mixup=1.0, cutmix=0.8, smoothing=0.1)


@pytest.fixture(scope="session")
def make_images():
    return _images


@pytest.fixture(scope="session")
def make_feed():
    return _feed


@pytest.fixture(scope="session")
def make_model():
    return _model
