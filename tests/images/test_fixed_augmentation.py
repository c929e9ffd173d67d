"""Laws of augmentation (src/visprism/images/fixed_augmentation.py)."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from visprism import InputError, Preprocessing, fixed_augmentation, load_data
from visprism.images.augmentation.views import _seeded

SMALL = Preprocessing((32, 32), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@pytest.fixture(scope="module")
def shapes():
    return load_data("shapes?size=32", limit=21)


def shares(soft, targets):
    """How much of each image is its own, where it is mixed with another class."""
    one = 0.9 * torch.nn.functional.one_hot(targets, soft.shape[1]).double()
    one += 0.1 / soft.shape[1]
    return torch.stack(
        [
            (row - other) @ (target - other) / ((target - other) @ (target - other))
            for row, target, other in zip(soft.double(), one, one.flip(0), strict=True)
            if not torch.equal(target, other)
        ]
    )


# What it gives.


def test_targets_are_probabilities_of_at_most_two_smoothed_classes(shapes):
    data = fixed_augmentation(shapes, SMALL, 8, 12)
    for (_, soft), start in zip(data, (0, 8, 16), strict=True):
        assert soft.shape[1] == 12
        torch.testing.assert_close(soft.sum(1), torch.ones(len(soft)))
        targets = torch.from_numpy(shapes.targets[start : start + len(soft)])
        for row, target in zip(soft, targets.tolist(), strict=True):
            raised = (row > 0.1 / 12 + 1e-6).nonzero().ravel().tolist()
            assert len(raised) <= 2
            assert set(raised) & {target, *targets.flip(0).tolist()}
            assert float(row.min()) == pytest.approx(0.1 / 12)


def test_each_image_is_mixed_with_its_mirror_in_the_batch(shapes):
    _, soft = fixed_augmentation(shapes, SMALL, 20, 10)[0]
    part = shares(soft, torch.from_numpy(shapes.targets[:20]))
    torch.testing.assert_close(part, part[:1].expand(len(part)))  # one part for the batch
    assert 0 <= float(part[0]) <= 1


def test_of_an_odd_number_one_image_is_not_mixed(shapes):
    _, soft = fixed_augmentation(shapes, SMALL, 21, 10)[0]
    expected = torch.full((10,), 0.01)
    expected[int(shapes.targets[10])] = 0.91  # the middle one is its own partner
    torch.testing.assert_close(soft[10], expected)


def test_mixup_and_cutmix_both_occur(shapes):
    # Cutmix keeps a whole number of the 1024 pixels, mixup any part of the light.
    pixels = []
    for number, (_, soft) in enumerate(fixed_augmentation(shapes, SMALL, 4, 10)):
        targets = torch.from_numpy(shapes.targets[4 * number : 4 * number + 4])
        if len(targets) == 4:
            pixels += (1024 * shares(soft, targets)).tolist()
    is_integer = [abs(number - round(number)) < 2e-3 for number in pixels]
    assert {True, False} == set(is_integer)


def test_large_images_are_cut_out():
    large = load_data("shapes?size=120", limit=4)
    images, soft = fixed_augmentation(large, Preprocessing((96, 80)), 4, 10)[0]
    assert images.shape == (4, 3, 96, 80)
    assert soft.shape == (4, 10)


def test_nothing_is_lost_of_the_range(shapes):
    images, _ = fixed_augmentation(shapes, SMALL, 20, 10)[0]
    assert images.min() >= -2 - 1e-6  # (0 - 0.5) / 0.25
    assert images.max() <= 2 + 1e-6
    assert images.std() > 0.2


# What leaves it unchanged.


def test_every_pass_and_every_process_sees_the_same(shapes):
    data = fixed_augmentation(shapes, SMALL, 8, 10)
    first, again = list(data), list(data)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    (_, last) = data[1:]  # as another process would read them
    assert torch.equal(last[0], first[2][0])
    assert len(data[1:]) == 2
    assert torch.equal(data[-1][1], first[2][1])


def test_other_seeds_and_batches_see_others(shapes):
    twice = replace(
        shapes, targets=np.tile(shapes.targets[:4], 2), textures=None, positions=None
    )
    twice = replace(twice, read=lambda indices: shapes.read([i % 4 for i in indices]))
    first, second = fixed_augmentation(twice, SMALL, 4, 10)
    assert not torch.allclose(first[0], second[0])
    other = fixed_augmentation(twice, SMALL, 4, 10, seed=1)[0]
    assert not torch.allclose(first[0], other[0])


def test_the_global_generators_are_as_they_were(shapes):
    # Not through a whole batch for Python's: what checks types in tests draws from it too.
    before = random.getstate()
    with _seeded(0, 1):
        first = random.random(), np.random.rand()  # noqa: NPY002
    assert random.getstate() == before
    with _seeded(0, 1):
        assert (random.random(), np.random.rand()) == first  # noqa: NPY002
    numpy_state, torch_state = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    list(fixed_augmentation(shapes, SMALL, 8, 10))
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(numpy_state, after, strict=True))
    assert torch.equal(torch.get_rng_state(), torch_state)


# Errors.


def test_images_without_labels_are_refused(shapes):
    blank = replace(shapes, targets=np.full(21, -1))
    with pytest.raises(InputError, match="must have labels for training"):
        fixed_augmentation(blank, SMALL, 8, 10)


def test_a_class_that_the_model_lacks_is_refused(shapes):
    with pytest.raises(InputError, match=r"below the number of classes \(5\), got 9"):
        fixed_augmentation(shapes, SMALL, 8, 5)


def test_a_batch_of_nothing_is_refused(shapes):
    with pytest.raises(InputError, match="batch_size must be positive, got 0"):
        fixed_augmentation(shapes, SMALL, 0, 10)
