"""Receptive fields by image: values whose mean is sigma, by which two models are paired."""

import numpy as np
import pytest
import torch
from maps import error_of
from torch import nn

from visprism import dissect, examine, receptive_field

IMAGES = 14


@pytest.fixture
def model(network):
    """The field of its last block depends on the image."""
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
    return network(*layers, channels=4)


@pytest.fixture
def measured(model, noise):
    images = noise(IMAGES, 3, 9, 9)
    anatomy = dissect(model, images[:2])
    return lambda rows: receptive_field(anatomy, images[rows].split(4))


def test_the_mean_over_images_is_sigma_and_the_spread_its_standard_error(measured):
    sigma = measured(slice(None))[0].sigma[-1]
    assert sigma.by_unit.shape == (IMAGES,)
    assert sigma.by_unit.mean() == pytest.approx(sigma, rel=1e-12)
    error = sigma.by_unit.std(ddof=1) / np.sqrt(IMAGES)
    assert error == pytest.approx(error_of(sigma, IMAGES), rel=1e-9)


def test_values_are_those_of_the_jackknife_to_first_order(measured):
    """n sigma - (n - 1) sigma without the image, of a second measurement without it."""
    sigma = measured(slice(None))[0].sigma[-1]
    rest = [[j for j in range(IMAGES) if j != i] for i in range(IMAGES)]
    without = np.array([measured(rows)[0].sigma[-1] for rows in rest])
    expected = IMAGES * sigma - (IMAGES - 1) * without
    np.testing.assert_allclose(sigma.by_unit - sigma, expected - sigma, rtol=0.15, atol=2e-3)


def test_two_models_are_paired_by_image(network, noise):
    images, targets = noise(40, 3, 9, 9), torch.arange(40) % 5
    small, large = (
        network(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), *rest, channels=4)
        for rest in ([], [nn.Conv2d(4, 4, 5, padding=2)])
    )
    study = examine(
        {"small": small, "large": large},
        [(images, targets)],
        analyses=["receptive-field"],
        minutes=None,
    )
    (row,) = study.table()
    a, b = (row.cells[name] for name in ("small", "large"))
    assert row.difference.value == pytest.approx(b.value - a.value, rel=1e-6)
    assert row.difference.low > 0  # a kernel of 5 sees further than none
    assert (row.difference.over, a.over) == ("images", "images")
