"""What holds for every corruption."""

import pytest
import torch

from visprism import InputError, corrupt
from visprism.images.corruptions.corrupt import COMMON, EXTRA
from visprism.images.corruptions.severities import table_for

EVERY = [*COMMON, *EXTRA]


@pytest.mark.parametrize("name", EVERY)
def test_an_image_is_corrupted_alike_in_every_batch(images, name):
    given = images(5, 32)[..., :24]
    before = given.clone()
    together = corrupt(given, name, 3, seed=1)
    assert (together.dtype, together.shape) == (given.dtype, given.shape)
    assert torch.equal(given, before)  # is not changed in place
    for part in ([3], [4, 0, 1]):
        alone = corrupt(given[part], name, 3, seed=1, numbers=part)
        # Products of matrices of other sizes are rounded in another order.
        assert (alone.int() - together[part].int()).abs().max() <= 1
        assert (alone != together[part]).float().mean() < 1e-3


RANDOM = [*COMMON[:3], "glass_blur", "motion_blur", "snow", "frost", "fog"]
RANDOM += ["elastic_transform", "speckle_noise", "spatter"]


@pytest.mark.parametrize("name", EVERY)
def test_the_seed_changes_what_is_random_and_nothing_else(images, name):
    # Glass at severity 4 of small images moves pixels by one.
    given = images(4, 48)
    same = torch.equal(corrupt(given, name, 5), corrupt(given, name, 5, seed=1))
    assert same == (name not in RANDOM)


@pytest.mark.parametrize("side", [32, 130])
@pytest.mark.parametrize("name", sorted({*EVERY} - {"elastic_transform"}))
def test_the_most_severe_changes_more_than_the_mildest(images, name, side):
    given = images(6, side)
    mild, severe = ((corrupt(given, name, s).float() - given).square().mean() for s in (1, 5))
    assert severe > mild


@pytest.mark.parametrize(
    ("size", "table"),
    [((45, 90), "CIFAR"), ((64, 64), "Tiny ImageNet"), ((119, 119), "Tiny ImageNet"),
     ((120, 160), "ImageNet")],
)  # fmt: skip
def test_the_severities_are_those_of_the_nearest_published_size(size, table):
    assert table_for(*size) == table


@pytest.mark.parametrize(
    ("shape", "name", "severity", "numbers", "message"),
    [
        ((1, 3, 32, 32), "fog", 6, None, r"severity must be 1 \(mild\) to 5 .*, got 6"),
        ((1, 3, 32, 32), "gauss_noise", 1, None, "unknown corruption .* Did you mean gau"),
        ((1, 3, 8, 32), "fog", 1, None, "sides of at least 16 pixels, got 8x32"),
        ((2, 3, 32, 32), "fog", 1, [7], r"numbers must be one per image \(2\), got 1"),
    ],
)
def test_what_cannot_be_corrupted_is_explained(noise, shape, name, severity, numbers, message):
    with pytest.raises(InputError, match=message):
        corrupt(noise(*shape), name, severity, numbers=numbers)
