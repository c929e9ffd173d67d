"""Fixtures of loss landscapes: a trained network and its batches."""

import pytest
from landscape_cases import Small, random_images, trained


@pytest.fixture
def small():
    return trained(Small(), random_images(16)[0])


@pytest.fixture
def batches():
    images, targets = random_images(12)
    return list(zip(images.split(5), targets.split(5), strict=True))
