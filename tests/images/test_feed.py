"""Laws of feeds (src/visprism/images/feed.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from visprism import Augmentation, Feed, InputError, Preprocessing, load_data, memory_feed
from visprism.images import STRONG

SMALL = Preprocessing((16, 16), mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
EVERYTHING = replace(STRONG, area=0.4, erasing=0.5, mix_probability=0.9)


@pytest.fixture(scope="module")
def shapes():
    return load_data("shapes?size=16", limit=45)


def feed(shapes, augmentation=EVERYTHING, batch_size=8, **options):
    return memory_feed(shapes, SMALL, batch_size, augmentation=augmentation, **options)


def equal(first, second):
    return all(
        torch.equal(a, b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one, other, strict=True)
    )


# What it gives.


def test_an_epoch_shows_every_image_once_and_unchanged_where_nothing_is_asked(shapes):
    plain = feed(shapes, Augmentation())
    assert isinstance(plain, Feed)
    assert (plain.images, plain.steps, plain.num_classes) == (45, 6, 10)
    batches = list(plain.epoch(0))
    assert [len(images) for images, _ in batches] == [8] * 5 + [5]
    mean, std = (torch.tensor(x)[:, None, None] for x in (SMALL.mean, SMALL.std))
    seen = torch.cat([images for images, _ in batches]) * std + mean
    seen = (255 * seen).round().byte().flatten(1)
    wanted = np.stack([np.asarray(image) for image in shapes.read(range(45))])
    wanted = torch.from_numpy(wanted).permute(0, 3, 1, 2).flatten(1)
    where = (seen[:, None] == wanted).all(2)
    assert (where.sum(0) == 1).all()
    assert (where.sum(1) == 1).all()
    targets = torch.cat([soft for _, soft in batches])
    assert set(targets.unique().tolist()) == {0.0, 1.0}
    assert targets.argmax(1).tolist() == shapes.targets[where.int().argmax(1)].tolist()


def test_every_epoch_has_its_own_order(shapes):
    plain = feed(shapes, Augmentation())
    (first, _), (second, _) = next(plain.epoch(0)), next(plain.epoch(1))
    assert not torch.equal(first, second)


def test_images_are_cut_out_anew_in_each_epoch(shapes):
    cut = feed(shapes, Augmentation(area=0.2))
    means = [
        sorted(torch.cat([x for x, _ in cut.epoch(n)]).mean((1, 2, 3)).tolist()) for n in (0, 1)
    ]
    assert not np.allclose(*means, atol=1e-3)


def test_targets_are_probabilities(shapes):
    for images, targets in feed(shapes, num_classes=12).epoch(3):
        assert images.dtype == targets.dtype == torch.float32
        assert targets.shape == (len(images), 12)
        torch.testing.assert_close(targets.sum(1), torch.ones(len(images)))
        assert targets.min() >= 0.1 / 12 - 1e-7


# What leaves it unchanged.


def test_an_epoch_goes_on_in_the_middle_as_if_it_had_begun_at_the_start(shapes):
    epoch = list(feed(shapes).epoch(2))
    for start in (1, 4, 6):
        assert equal(epoch[start:], feed(shapes).epoch(2, start=start))


@pytest.mark.parametrize("augmentation", [EVERYTHING, Augmentation(flip=0.5)])
@pytest.mark.parametrize("world", [2, 3, 7])
def test_the_parts_of_all_processes_are_the_batch_of_one(shapes, augmentation, world):
    epoch = list(feed(shapes, augmentation).epoch(1))
    parts = [list(feed(shapes, augmentation).epoch(1, part=(r, world))) for r in range(world)]
    for step, (images, targets) in enumerate(epoch):
        sizes = [len(part[step][0]) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        joined = torch.cat([part[step][0] for part in parts]).flatten(1)
        places = (joined[:, None] == images.flatten(1)).all(2).int().argmax(1)
        assert sorted(places.tolist()) == list(range(len(images)))
        assert torch.equal(torch.cat([part[step][1] for part in parts]), targets[places])


def test_how_many_batches_are_augmented_together_changes_nothing(shapes, monkeypatch):
    many = list(feed(shapes).epoch(0))
    monkeypatch.setattr("visprism.images.training_batches._PIXELS", {"other": 1})
    assert equal(many, feed(shapes).epoch(0))


def test_the_seed_changes_the_order_and_what_is_drawn(shapes):
    first, again, other = (list(feed(shapes, seed=seed).epoch(0)) for seed in (0, 0, 1))
    assert equal(first, again)
    assert not equal(first, other)


def test_the_global_generators_are_left_alone(shapes):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    list(feed(shapes).epoch(0))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


# Errors.


def test_a_batch_larger_than_the_set_is_refused(shapes):
    with pytest.raises(InputError, match=r"at most the number of images of .* \(45\), got 46"):
        feed(shapes, batch_size=46)
    with pytest.raises(InputError, match="batch_size must be positive, got 0"):
        feed(shapes, batch_size=0)


def test_a_set_without_images_is_refused(shapes):
    with pytest.raises(InputError, match="must have at least one batch of images"):
        feed(shapes.subset(np.arange(0)))


def test_images_without_labels_are_refused(shapes):
    blank = replace(shapes, targets=np.full(45, -1))
    with pytest.raises(InputError, match="must have labels for training"):
        feed(blank)


def test_a_label_that_the_model_lacks_is_refused(shapes):
    with pytest.raises(InputError, match=r"below the number of classes \(5\), got 9"):
        feed(shapes, num_classes=5)
