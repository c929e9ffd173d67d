"""Laws of the images of a study, and of their batches."""

import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

from visprism import Batches, ImageSet, InputError, Preprocessing, batches
from visprism.images.images import ordered, tensor_images, to_pixels
from visprism.images.pixels import center_crop, normalized

WAY = Preprocessing((4, 4), mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.3))
PLAIN = {"mean": (0.0,) * 3, "std": (1.0,) * 3}


class CountedReads:
    """Pictures, and how often each was read."""

    def __init__(self, pictures):
        self.pictures, self.reads = pictures, np.zeros(len(pictures), dtype=int)

    def image_set(self, targets=None):
        def read(indices):
            np.add.at(self.reads, list(indices), 1)
            return [self.pictures[i] for i in indices]

        targets = np.arange(len(self.reads)) % 2 if targets is None else targets
        return ImageSet("x", "", ("a", "b", "c"), targets, read)


@pytest.fixture
def source(photo):
    return lambda number, side=12: CountedReads([photo(side, side, i) for i in range(number)])


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (11, 3, 4, 4), generator=generator, dtype=torch.uint8)
    targets = torch.arange(11) % 3
    return tensor_images([(normalized(pixels, WAY), targets)], preprocessing=WAY), pixels


@pytest.mark.parametrize(
    ("shape", "crop", "interpolation"),
    [((50, 37), 0.875, "bilinear"), ((31, 64), 1.0, "lanczos"), ((20, 23), 0.875, "bicubic")],
)
def test_batches_agree_with_timm(photo, shape, crop, interpolation):
    from timm.data import create_transform

    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    transform = create_transform(
        (3, 32, 32), interpolation=interpolation, crop_pct=crop, mean=mean, std=std
    )
    pictures = [photo(*shape, seed=i) for i in range(2)]
    way = Preprocessing((32, 32), mean, std, interpolation, crop)
    ((ours, _),) = batches(CountedReads(pictures).image_set(), way, 2)
    theirs = torch.stack([transform(picture) for picture in pictures])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "shape"), [((16, 40), (64, 64)), ((40, 16), (30, 90)), ((16, 40), (90, 30))]
)
def test_a_crop_that_is_not_square_is_the_middle_of_the_image(size, shape):
    ramp = np.linspace(0, 255, shape[0])[None, :, None] * np.ones((shape[1], 1, 3))
    image = Image.fromarray(ramp.astype(np.uint8))
    pixels = np.asarray(center_crop(image, Preprocessing(size, interpolation="bilinear")))
    assert pixels.shape == (*size, 3)
    assert pixels.mean() == pytest.approx(127.5, abs=3)  # the ramp's middle
    assert pixels[0, 0, 0] < pixels[0, -1, 0]


@pytest.mark.parametrize("side", [32, 96])
def test_without_a_statement_small_images_keep_size_and_pixels(source, side):
    images = ordered(source(3, side).image_set())
    way = images.preprocessing(None)
    assert (way.size, way.mean, way.std) == ((side, side), (0.0,) * 3, (1.0,) * 3)
    ((x, _),) = images.batches(way, batch_size=3)
    assert torch.equal((255 * x).round().byte(), images.pixels(way, 0, 20))
    assert images.preprocessing(WAY) == WAY


@pytest.mark.parametrize(
    ("shapes", "side"),
    [([(32, 32), (32, 31)], 224), ([(97, 97)], 224), ([(60, 90)] * 2, 60)],
)
def test_without_a_statement_other_images_are_cropped_to_a_square(photo, shapes, side):
    images = CountedReads([photo(*shape) for shape in shapes]).image_set()
    assert ordered(images).preprocessing(None).size == (side, side)


def test_the_size_does_not_depend_on_which_images_are_selected(photo):
    images = CountedReads([photo(32, 32) for _ in range(5)] + [photo(200, 300)]).image_set()
    for number in (1, 3, 6):
        part = images.subset(np.arange(number)).subset(np.arange(number))
        assert ordered(part).preprocessing(None).size == (224, 224)


def test_tensors_and_pictures_have_one_order(source):
    pictures = source(9).image_set(np.arange(9) % 3)
    given = [(torch.zeros(9, 3, 4, 4), torch.arange(9) % 3)]
    tensors, order = tensor_images(given, seed=2), ordered(pictures, seed=2).positions.tolist()
    assert tensors.positions.tolist() == order != ordered(pictures, seed=1).positions.tolist()
    assert order[:7] == ordered(pictures, seed=2, limit=7).positions.tolist()


def test_images_are_decoded_once_whatever_the_batch_size_and_normalization(source):
    counted = source(20)
    images = ordered(counted.image_set())
    passes = [
        (Preprocessing((8, 8)), 4, 20),
        (Preprocessing((8, 8), **PLAIN), 7, 13),
        (Preprocessing((8, 8)), 20, None),
    ]
    for way, size, limit in passes:
        seen = torch.cat([x for x, _ in images.batches(way, batch_size=size, limit=limit)])
        assert torch.equal(seen, batches(source(20).image_set(), way, 20)[0][0][:limit])
    images.pixels(Preprocessing((8, 8)), 3, 9)
    assert counted.reads.tolist() == [1] * 20
    list(images.batches(Preprocessing((6, 6)), batch_size=4))
    assert counted.reads.tolist() == [2] * 20


def test_several_threads_keep_the_order_of_batches():
    at_once = threading.Barrier(4)

    def prepare(rows):
        at_once.wait(timeout=10)  # four threads, or an error
        time.sleep(0.01 * (-rows.start % 4))  # the last one of four is ready first
        return rows.start

    assert list(Batches(prepare, 12, 1, range(12), threads=4)) == list(range(12))


@pytest.mark.parametrize("kind", ["tensors", "pictures"])
def test_a_change_is_given_pixels_and_their_indices_and_reaches_no_other_pass(
    kind, tensors, source
):
    images = tensors[0] if kind == "tensors" else ordered(source(9).image_set())
    pixels, seen = images.pixels(WAY, 0, 6), []

    def invert(crops, indices):
        seen.append((crops.dtype, list(indices)))
        return crops.neg_().sub_(1)

    parts = images.batches(WAY, batch_size=4, limit=6, change=invert)
    changed = torch.cat([x for x, _ in parts])
    assert torch.equal(to_pixels(changed, WAY), 255 - pixels)
    assert seen == [(torch.uint8, [0, 1, 2, 3]), (torch.uint8, [4, 5])]
    assert torch.equal(images.pixels(WAY, 0, 6), pixels)


def test_other_targets_have_another_fingerprint(tensors):
    images, pixels = tensors
    same, other = (
        tensor_images([(normalized(pixels, WAY), torch.arange(11) % n)]).fingerprint()
        for n in (3, 2)
    )
    assert same == images.fingerprint() != other


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        (torch.zeros(3, dtype=torch.long), "(2), got shape (3,) of type int64"),
        (torch.zeros(2), "(2), got shape (2,) of type float32"),
        (torch.zeros(2, 4, 4, dtype=torch.long), "(2), got shape (2, 4, 4) of type int64"),
        (["cat", "dog"], "(2), got list (too many dimensions 'str')"),
    ],
)
def test_other_targets_than_class_indices_are_left_out_with_the_reason(targets, reason):
    data = tensor_images([(torch.zeros(2, 3, 4, 4), targets)])
    assert data.targets is None
    assert data.without_labels.endswith(reason)


def test_a_mapping_of_images_and_labels_is_images_and_targets():
    pixels, labels = torch.rand(3, 3, 4, 4), torch.tensor([2, 0, 1])
    alone = tensor_images([(pixels,)])  # of a TensorDataset of images
    assert torch.equal(alone.tensors, pixels)
    assert alone.targets is None
    data = tensor_images([{"pixel_values": pixels, "labels": labels}])
    assert torch.equal(data.tensors, pixels)
    assert data.targets.tolist() == [2, 0, 1]
    data = tensor_images(
        [{"index": labels, "image": pixels, "label": labels, "name": ["a"] * 3}]
    )
    assert torch.equal(data.tensors, pixels)
    inputs = {"pixel_values": pixels, "pixel_mask": pixels[:, 0]}
    for more in ({}, {"labels": labels}):
        several = tensor_images([inputs | more])
        assert several.tensors.keys() == inputs.keys()
        assert (several.targets is None) == (not more)


def test_a_loader_may_fill_the_same_memory_with_each_batch():
    pixels, labels = torch.zeros(2, 3, 4, 4), torch.zeros(2).long()
    data = ((pixels.fill_(i), labels.fill_(i)) for i in range(3))
    images = tensor_images(data, limit=5)
    assert images.tensors[:, 0, 0, 0].tolist() == [0, 0, 1, 1, 2]
    assert images.targets.tolist() == [0, 0, 1, 1, 2]


X = torch.zeros(2, 3, 4, 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (X, "must be an iterable of batches, got one batch"),
        ([], "at least one image"),
        ([(X, X, X)], "got 3 items"),
        ([X, torch.zeros(2).long()], r"got \(2,\)\. Images and targets are a pair"),
        ([X, X[..., :2]], "one size, got 3x4x2 after 3x4x4"),
        ([np.zeros((2, 3, 4, 4))], r"must be tensors, got ndarray\. Convert"),
    ],
)
def test_what_is_no_iterable_of_batches_is_explained(data, message):
    with pytest.raises(InputError, match=message):
        tensor_images(data)
