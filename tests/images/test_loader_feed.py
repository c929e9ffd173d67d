"""Laws of feeds from files (src/visprism/images/feed.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from visprism import (
    Augmentation,
    Feed,
    InputError,
    Preprocessing,
    batches,
    load_data,
    loader_feed,
)
from visprism.images import STRONG_LARGE

WAY = Preprocessing((16, 24))


@pytest.fixture
def pets(folder, photo):
    for i in range(5):
        photo(width=40, height=30, seed=50 + i).save(folder / "dogs" / f"large{i}.png")
    return load_data(f"folder:{folder}")  # 13 images


def feed(images, **options):
    options = {"augmentation": replace(STRONG_LARGE, padding=2)} | options
    return loader_feed(images, WAY, 4, **options)


def equal(first, second):
    return all(
        torch.equal(a, b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_an_epoch_shows_every_image_once_as_in_evaluation_where_nothing_is_asked(pets):
    plain = feed(pets, augmentation=Augmentation())
    assert isinstance(plain, Feed)
    assert (plain.images, plain.steps, plain.num_classes, plain.batch_size) == (13, 4, 2, 4)
    seen = list(plain.epoch(0))
    assert [len(images) for images, _ in seen] == [4, 4, 4, 1]
    ((wanted, classes),) = batches(pets, WAY, 13)
    images = torch.cat([images for images, _ in seen])
    where = torch.isclose(images[:, None], wanted, atol=1e-5).flatten(2).all(2)
    assert (where.sum(0) == 1).all()
    targets = torch.cat([targets for _, targets in seen])
    assert targets.argmax(1).tolist() == classes[where.int().argmax(1)].tolist()


def test_the_number_of_workers_changes_nothing(pets):
    alone = list(feed(pets).epoch(1))
    assert equal(alone, feed(pets, workers=2).epoch(1))
    assert not equal(alone, feed(pets).epoch(2))


def test_an_epoch_goes_on_in_the_middle_and_is_shared_among_processes(pets):
    epoch = list(feed(pets).epoch(3))
    assert equal(epoch[2:], feed(pets).epoch(3, start=2))
    parts = [list(feed(pets).epoch(3, part=(rank, 3))) for rank in range(3)]
    for step, (images, targets) in enumerate(epoch):
        joined = torch.cat([part[step][0] for part in parts]).flatten(1)
        places = (joined[:, None] == images.flatten(1)).all(2).int().argmax(1)
        assert sorted(places.tolist()) == list(range(len(images)))
        assert torch.equal(torch.cat([part[step][1] for part in parts]), targets[places])


def test_images_are_cut_out_anew_in_each_epoch(pets):
    cut = feed(pets, augmentation=Augmentation(area=0.08))
    means = [
        sorted(torch.cat([x for x, _ in cut.epoch(n)]).mean((1, 2, 3)).tolist()) for n in (0, 1)
    ]
    assert not np.allclose(*means, atol=1e-3)


def test_the_global_generators_are_left_alone(pets):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    list(feed(pets, workers=1).epoch(0))
    list(feed(pets).epoch(0))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


# Errors.


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_is_damaged_in_the_middle_of_an_epoch_is_named(pets, folder, workers):
    (folder / "dogs" / "large3.png").write_bytes(b"no image")
    message = (
        r"^an image of folder:\S+ cannot be read: dogs/large3.png \([^)]*\)\. Repair it and "
    )
    with pytest.raises(InputError, match=message):
        list(feed(pets, workers=workers).epoch(0))


def test_workers_must_be_a_number(pets):
    with pytest.raises(InputError, match="workers must be 0, or positive where processes can"):
        feed(pets, workers=-1)


def test_what_cannot_be_trained_on_is_refused(pets):
    with pytest.raises(InputError, match=r"at most the number of images of .* \(3\), got 4"):
        feed(pets.subset(np.arange(3)))
    with pytest.raises(InputError, match="must have labels for training"):
        feed(replace(pets, targets=np.full(13, -1)))
