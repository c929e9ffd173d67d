"""Laws of the images of a study (src/visprism/images/study_images.py)."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from visprism import ImageSet, InputError, Preprocessing
from visprism.images.crops import CropCache, Crops
from visprism.images.images import PictureImages, ordered
from visprism.images.images import from_pixels, tensor_images, to_pixels

WAY = Preprocessing((4, 4), mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (11, 3, 4, 4), generator=generator, dtype=torch.uint8)
    targets = torch.arange(11) % 3
    return tensor_images([(from_pixels(pixels, WAY), targets)], preprocessing=WAY), pixels


def sorted_by_class(counts):
    targets = np.repeat(np.arange(len(counts)), counts)

    def read(positions):
        return [Image.new("RGB", (4, 4), (int(i), 0, 0)) for i in positions]

    return ImageSet("made", "", tuple("abc"), targets, read)


def test_pixels_come_back_exactly_from_normalized_images(images):
    _, pixels = images
    assert torch.equal(to_pixels(from_pixels(pixels, WAY), WAY), pixels)


def test_the_batch_size_does_not_change_what_is_seen(images):
    data, _ = images
    for size in (1, 4, 11, 20):
        parts = data.batches(None, batch_size=size)
        assert torch.equal(torch.cat([x for x, _ in parts]), data.images)
        assert torch.equal(torch.cat([t for _, t in parts]), data.labels)


def test_slices_of_batches_are_batches(images):
    data, _ = images
    batches = data.batches(None, batch_size=3)
    assert len(batches) == 4
    taken = batches[1::2]
    assert len(taken) == 2
    assert torch.equal(taken[0][0], data.images[3:6])
    assert torch.equal(taken[1][0], data.images[9:])
    assert torch.equal(torch.cat([x for x, _ in taken]), data.images[[3, 4, 5, 9, 10]])


def test_a_change_of_pixels_is_given_pixels_and_their_indices(images):
    data, pixels = images
    seen = []

    def invert(crops, numbers):
        seen.append((crops, list(numbers)))
        return 255 - crops

    batches = data.batches(WAY, batch_size=4, limit=6, change=invert)
    normalized = torch.cat([x for x, _ in batches])
    assert torch.equal(to_pixels(normalized, WAY), 255 - pixels[:6])
    assert [numbers for _, numbers in seen] == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(
        InputError, match="preprocessing must be given where pixels are changed"
    ):
        data.batches(None, batch_size=4, change=invert)


def test_the_next_change_of_pixels_is_made_while_a_batch_is_used(images):
    changed = threading.Event()

    def change(pixels, indices):
        if 4 in indices:
            changed.set()
        return pixels

    before = threading.active_count()
    iterator = iter(images[0].batches(WAY, batch_size=4, change=change))
    next(iterator)
    assert changed.wait(timeout=10)
    iterator.close()
    assert threading.active_count() == before


def test_an_error_of_a_change_of_pixels_reaches_the_user(images):
    def change(_, indices):
        raise InputError(f"no change of images {min(indices)} to {max(indices)}")

    with pytest.raises(InputError, match="no change of images 0 to 3"):
        list(images[0].batches(WAY, batch_size=4, change=change))


@pytest.mark.parametrize("counts", [(5, 5, 5), (9, 3, 2)])
def test_every_first_part_of_ordered_images_is_balanced(counts):
    data = ordered(sorted_by_class(counts), seed=4)
    for number in range(1, len(data) + 1):
        seen = np.bincount(data.targets[:number], minlength=3)
        full = [seen[c] == counts[c] for c in range(3)]
        open_ = [seen[c] for c in range(3) if not full[c]]
        assert max(open_, default=0) - min(open_, default=0) <= 1
    assert sorted(data.targets) == sorted(sorted_by_class(counts).targets)


def test_ordered_images_depend_on_the_seed_alone():
    same = [
        ordered(sorted_by_class((6, 6, 6)), seed=s).image_set.read(range(18)) for s in (1, 1, 2)
    ]
    reds = [[picture.getpixel((0, 0))[0] for picture in pictures] for pictures in same]
    assert reds[0] == reds[1]
    assert reds[0] != reds[2]


def test_other_pixels_or_targets_have_another_fingerprint(images):
    data, pixels = images
    same = tensor_images([(from_pixels(pixels, WAY), torch.arange(11) % 3)])
    others = [
        tensor_images([(from_pixels(255 - pixels, WAY), torch.arange(11) % 3)]),
        tensor_images([(from_pixels(pixels, WAY), torch.arange(11) % 2)]),
        tensor_images([from_pixels(pixels, WAY)]),
    ]
    assert same.fingerprint() == data.fingerprint()
    assert len({data.fingerprint(), *(o.fingerprint() for o in others)}) == 4


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        (torch.zeros(3, dtype=torch.long), "(2), got shape (3,) of type int64"),
        (torch.zeros(2), "(2), got shape (2,) of type float32"),
        (torch.zeros(2, 4, 4, dtype=torch.long), "(2), got shape (2, 4, 4) of type int64"),
        (["cat", "dog"], "got list (too many dimensions 'str')"),
    ],
)
def test_other_targets_than_class_indices_are_left_out_with_the_reason(targets, reason):
    data = tensor_images([(torch.zeros(2, 3, 4, 4), targets)])
    assert data.targets is None
    assert data.without_labels.startswith("targets must be one class index per image")
    assert data.without_labels.endswith(reason)


def test_a_mapping_of_images_and_labels_is_images_and_targets():
    pixels, labels = torch.rand(3, 3, 4, 4), torch.tensor([2, 0, 1])
    data = tensor_images([{"pixel_values": pixels, "labels": labels}])
    assert torch.equal(data.images, pixels)
    assert torch.equal(data.labels, labels)
    two = tensor_images([{"image": pixels, "mask": pixels[:, :1]}])
    assert set(two.images) == {"image", "mask"}


# Crops in memory.


class CountedReads:
    """Random images of 12x12 pixels, and how often each was read."""

    def __init__(self, number):
        self.reads = np.zeros(number, dtype=int)
        pixels = np.random.default_rng(0).integers(0, 256, (number, 12, 12, 3))
        self._pictures = [Image.fromarray(p.astype(np.uint8)) for p in pixels]

    def image_set(self):
        def read(indices):
            np.add.at(self.reads, list(indices), 1)
            return [self._pictures[i] for i in indices]

        return ImageSet("x", "", ("a", "b"), np.arange(len(self.reads)) % 2, read)


def test_images_are_decoded_once_whatever_the_batch_size_and_normalization():
    source = CountedReads(20)
    images = PictureImages(source.image_set())
    passes = [
        (Preprocessing((8, 8)), 4, 20),
        (Preprocessing((8, 8), mean=(0.0,) * 3, std=(1.0,) * 3), 7, 13),
        (Preprocessing((8, 8)), 20, None),
    ]
    for way, size, limit in passes:
        seen = torch.cat([x for x, _ in images.batches(way, batch_size=size, limit=limit)])
        anew = PictureImages(CountedReads(20).image_set()).batches(way, batch_size=20)[0][0]
        assert torch.equal(seen, anew[:limit])
    assert source.reads.tolist() == [1] * 20
    images.pixels(Preprocessing((8, 8)), 3, 9)
    assert source.reads.tolist() == [1] * 20
    list(images.batches(Preprocessing((6, 6)), batch_size=4))
    assert source.reads.tolist() == [2] * 20


def test_a_change_of_pixels_does_not_reach_the_crops_in_memory():
    images, way = PictureImages(CountedReads(6).image_set()), Preprocessing((12, 12))
    before = images.pixels(way, 0, 6)
    list(images.batches(way, batch_size=3, change=lambda x, _: x.zero_()))
    assert torch.equal(images.pixels(way, 0, 6), before)


def test_crops_beyond_the_memory_are_decoded_again():
    source, way = CountedReads(10), Preprocessing((12, 12))
    crops = Crops(source.image_set(), way, most_bytes=6 * 3 * 12 * 12)
    first, again = (torch.cat([crops(range(i, i + 4)) for i in (0, 4)]) for _ in range(2))
    assert torch.equal(first, again)
    assert source.reads.tolist() == [1] * 4 + [2] * 4 + [0] * 2
    cache = CropCache(most_bytes=6 * 3 * 12 * 12)
    assert cache.of(source.image_set(), way).nbytes == 6 * 3 * 12 * 12
    assert cache.of(source.image_set(), Preprocessing((4, 4))).nbytes == 0
