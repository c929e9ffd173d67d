"""Tiny networks, images and analyses for studies."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import visprism as vp
from visprism.estimates.estimated import Estimated, mean
from visprism.estimates.questions import Question

BRIGHT = Question("How bright?", "brightness")


@vp.result_type("test-brightness")
class Brightness(vp.Result):
    """Mean of the images; one row."""

    mean: Estimated = vp.estimate(
        "brightness", "", "mean of all numbers of all images", question=BRIGHT
    )
    images: np.ndarray = vp.column("Images", "", "number of images")


@dataclass(frozen=True)
class MeasureBrightness(vp.Analysis):
    """Mean brightness of the images as the model sees them."""

    name = "brightness"
    needs = vp.Needs.NOTHING
    sections = (vp.Section(Brightness, "Brightness", "How bright the images are."),)
    images = vp.Sizes(fewest=2)

    offset: float = vp.option(0.0, "number to add")

    def measure(self, subject, run):
        images = [
            b[0] if isinstance(b, tuple) else b for b in run.track(subject.batches(), "x")
        ]
        values = torch.cat(images).flatten(1).mean(1).double().numpy() + self.offset
        n = len(values)
        origin = run.measured(images=n, batch_size=16, image_shape=tuple(images[0].shape[1:]))
        return (
            Brightness(mean=mean(values[:, None]), images=np.array([n]), provenance=origin),
        )

    def cost(self, subject):
        return vp.Cost(per_image=1.0)


class Net(nn.Module):
    """A convolution, its ReLU, the mean over positions, and logits."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            self.head = nn.Linear(4, 5)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture
def brightness():
    return MeasureBrightness()


@pytest.fixture
def net():
    return lambda seed=0: Net(seed).eval()


@pytest.fixture
def loader():
    """Batches of 8, 8 and 4 images with targets."""
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(20, 3, 8, 8, generator=generator)
    targets = torch.randint(5, (20,), generator=generator)
    return list(zip(images.split(8), targets.split(8), strict=True))
