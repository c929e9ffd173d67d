"""Receptive fields by image: values whose mean is sigma, by which two models are paired."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import dissect, examine, receptive_field
from visprism.analyses.features.receptive_field import Fields, in_turn
from visprism.results import paired_differences

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
    sizes, _, values = measured(slice(None))
    assert values.image.tolist() == list(range(IMAGES))
    assert values.over == "images"
    assert values.value.mean() == pytest.approx(sizes.sigma[-1], rel=1e-12)
    error = values.value.std(ddof=1) / np.sqrt(IMAGES)
    assert error == pytest.approx(sizes.sigma_error[-1], rel=1e-9)


def test_values_are_those_of_the_jackknife_to_first_order(measured):
    """n sigma - (n - 1) sigma without the image, of a second measurement without it."""
    sizes, _, values = measured(slice(None))
    rest = [[j for j in range(IMAGES) if j != i] for i in range(IMAGES)]
    without = np.array([measured(rows)[0].sigma[-1] for rows in rest])
    expected = IMAGES * sizes.sigma[-1] - (IMAGES - 1) * without
    np.testing.assert_allclose(
        values.value - sizes.sigma[-1], expected - sizes.sigma[-1], rtol=0.15, atol=2e-3
    )


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
    same = [study["small"].results("receptive-field")[-1]] * 2
    assert paired_differences(*same).difference.tolist() == [0]


def test_batches_that_processes_take_in_turn_are_in_the_order_of_the_data():
    def fields(*batches):
        moments = tuple(np.full((5, 2), float(b)) for b in batches)
        return Fields(np.full((3, 3), float(sum(batches))), moments)

    joined = in_turn([fields(0, 3, 6), fields(1, 4), fields(2, 5)])
    assert joined.of_images()[0].tolist() == [n for n in range(7) for _ in range(2)]
    assert joined.total[0, 0] == 21


def test_a_model_without_a_field_has_no_values(noise):
    conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    nn.init.zeros_(conv.weight)
    model = nn.Sequential(conv, nn.Flatten(), nn.Linear(81, 5)).double().eval()
    images = noise(3, 1, 9, 9)
    *_, values = receptive_field(dissect(model, images), [images])
    assert (len(values), values.quantities) == (0, ())
