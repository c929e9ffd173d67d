"""Laws of training batches, from memory and from files."""

from dataclasses import replace

import pytest
import torch

import visprism as vp
from visprism import Augmentation, InputError, Preprocessing
from visprism.images.augmentation import STRONG, STRONG_LARGE

WAY = Preprocessing((16, 24), mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
SETTINGS = {
    "memory": replace(STRONG, area=0.4, erasing=0.5, mix_probability=0.9),
    "loader": replace(STRONG_LARGE, padding=2),
}


@pytest.fixture
def pets(folder, photo):
    for i in range(5):
        photo(width=40, height=30, seed=50 + i).save(folder / "dogs" / f"large{i}.png")
    return vp.load_data(f"folder:{folder}")  # 13 images


@pytest.fixture(params=["memory", "loader"])
def feed(request, pets):
    make = {"memory": vp.memory_feed, "loader": vp.loader_feed}[request.param]

    def feed(images=pets, batch_size=4, **options):
        options = {"augmentation": SETTINGS[request.param]} | options
        return make(images, WAY, batch_size, **options)

    return feed


def equal(first, second):
    return all(
        torch.equal(a, b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_an_epoch_shows_every_image_once_as_in_evaluation_where_nothing_is_asked(feed, pets):
    plain = feed(augmentation=Augmentation())
    assert (plain.images, plain.steps, plain.num_classes, plain.batch_size) == (13, 4, 2, 4)
    seen = list(plain.epoch(0))
    assert [len(images) for images, _ in seen] == [4, 4, 4, 1]
    ((wanted, classes),) = vp.batches(pets, WAY, 13)
    images, targets = (torch.cat(parts) for parts in zip(*seen, strict=True))
    where = (images[:, None] == wanted).flatten(2).all(2)
    assert (where.sum(0) == 1).all()
    assert targets.tolist() == torch.eye(2)[classes[where.int().argmax(1)]].tolist()
    assert not torch.equal(images, torch.cat([x for x, _ in plain.epoch(1)]))


def test_a_batch_depends_on_seed_epoch_and_step_alone(feed):
    epoch = list(feed().epoch(2))
    for start in (1, 3):
        assert equal(epoch[start:], feed().epoch(2, start=start))
    assert equal(epoch, feed(workers=2).epoch(2))
    assert not equal(epoch, feed().epoch(1))
    assert not equal(epoch, feed(seed=1).epoch(2))


@pytest.mark.parametrize("world", [3, 7])
def test_the_shares_of_all_processes_are_the_batch_of_one(feed, world):
    epoch = list(feed().epoch(1))
    parts = [list(feed().epoch(1, part=(rank, world))) for rank in range(world)]
    for step, (images, targets) in enumerate(epoch):
        sizes = [len(part[step][0]) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        joined = torch.cat([part[step][0] for part in parts]).flatten(1)
        places = (joined[:, None] == images.flatten(1)).all(2).int().argmax(1)
        assert sorted(places.tolist()) == list(range(len(images)))
        assert torch.equal(torch.cat([part[step][1] for part in parts]), targets[places])


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_is_damaged_in_the_middle_of_an_epoch_is_named(pets, folder, workers):
    (folder / "dogs" / "large3.png").write_bytes(b"no image")
    message = r"^an image of folder:\S+ cannot be read: dogs/large3.png \([^)]*\)\. Repair it"
    with pytest.raises(InputError, match=message):
        list(vp.loader_feed(pets, WAY, 4, workers=workers).epoch(0))
