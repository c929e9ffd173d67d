"""What holds for every corruption (src/visprism/images/corruptions)."""

import numpy as np
import pytest
import torch

from visprism import CORRUPTIONS, InputError, corrupt
from visprism.images.corruptions import COMMON, EXTRA, table_for
from visprism.images.corruptions.severities import severity_parameters

EVERY = [*COMMON, *EXTRA]


def test_there_are_the_15_and_4_of_the_paper():
    assert len(COMMON) == 15
    assert len(EXTRA) == 4
    assert set(EVERY) <= set(CORRUPTIONS)


@pytest.mark.parametrize("size", [(32, 32), (64, 48), (150, 130)])
@pytest.mark.parametrize("name", EVERY)
def test_images_keep_their_shape_and_change(images, name, size):
    given = images(2, max(size))[..., : size[0], : size[1]]
    before = given.clone()
    corrupted = corrupt(given, name, 3)
    assert corrupted.shape == given.shape
    assert corrupted.dtype == torch.uint8
    assert (corrupted != given).any()
    torch.testing.assert_close(given, before)  # is not changed in place


@pytest.mark.parametrize("name", EVERY)
def test_an_image_is_corrupted_alike_in_every_batch(images, name):
    given = images(5, 32)
    together = corrupt(given, name, 3, seed=1)
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


@pytest.mark.parametrize("side", [32, 64, 130])
@pytest.mark.parametrize("name", sorted({*EVERY} - {"elastic_transform"}))
def test_the_most_severe_changes_more_than_the_mildest(images, name, side):
    given = images(6, side)
    mild, severe = ((corrupt(given, name, s).float() - given).square().mean() for s in (1, 5))
    assert severe > mild


def test_the_mildest_elastic_transform_moves_farthest(images):
    # So it is published: the shift of the corners shrinks faster than the displacement grows.
    given = images(6, 32)
    mild, severe = (
        (corrupt(given, "elastic_transform", s).float() - given).square().mean() for s in (1, 5)
    )
    assert severe < mild


@pytest.mark.parametrize(
    ("size", "table"),
    [((32, 32), "CIFAR"), ((45, 90), "CIFAR"), ((64, 64), "Tiny ImageNet"),
     ((119, 119), "Tiny ImageNet"), ((120, 160), "ImageNet"), ((224, 224), "ImageNet")],
)  # fmt: skip
def test_the_severities_are_those_of_the_nearest_published_size(size, table):
    assert table_for(*size) == table


def test_severities_are_those_of_the_published_sets():
    # The number that tells the three sets apart most.
    noise = [[severity_parameters("gaussian_noise", s, torch.zeros(1, 3, n, n)) for s in (1, 5)]
             for n in (32, 64, 224)]  # fmt: skip
    assert noise == [[0.04, 0.10], [0.04, 0.18], [0.08, 0.38]]


# What is refused.


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_a_severity_that_is_none_is_refused(noise, severity):
    with pytest.raises(
        InputError, match=rf"severity must be 1 \(mild\) to 5 .*, got {severity}"
    ):
        corrupt(noise(1, 3, 32, 32), "fog", severity)


def test_an_unknown_corruption_is_told_what_was_meant(noise):
    with pytest.raises(
        InputError, match=r"unknown corruption 'gauss_noise'\. Did you mean gau"
    ):
        corrupt(noise(1, 3, 32, 32), "gauss_noise", 1)


def test_images_that_are_not_eight_bit_rgb_are_refused(noise):
    from visprism.images.corruptions.corrupt import check_images

    with pytest.raises(InputError, match=r"images must be uint8, 0 to 255, .* got float32"):
        check_images(noise(1, 3, 32, 32) / 255)
    with pytest.raises(InputError, match=r"images must be RGB .*, got \(1, 1, 32, 32\)"):
        check_images(noise(1, 1, 32, 32))
    with pytest.raises(InputError, match="sides of at least 16 pixels, got 8x32"):
        check_images(noise(1, 3, 8, 32))


def test_numbers_that_are_too_few_are_refused(noise):
    with pytest.raises(InputError, match=r"numbers must be one per image \(2\), got 1"):
        corrupt(noise(2, 3, 32, 32), "fog", 1, numbers=[7])


def test_no_image_is_no_work(noise):
    assert len(corrupt(noise(0, 3, 32, 32), "fog", 1)) == 0


def test_every_corruption_says_what_it_is():
    for name in EVERY:
        assert CORRUPTIONS[name].__name__ == name
        assert CORRUPTIONS[name].__doc__.strip().endswith(".")
    assert np.all([name.islower() for name in CORRUPTIONS])
