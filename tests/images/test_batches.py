"""Laws of batches (src/visprism/images/batches.py, memory.py)."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from visprism import ImageSet, Preprocessing, batches, load_data
from visprism.images import default_preprocessing, in_memory
from visprism.images.batches import cropped


def image_set(images):
    return ImageSet(
        source="test",
        split="",
        class_names=("a", "b"),
        targets=np.arange(len(images)) % 2,
        read=lambda indices: [images[i] for i in indices],
    )


# What a model gets.


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("crop", [0.875, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(50, 37), (31, 64), (32, 32), (20, 23)])
def test_agrees_with_timm(photo, shape, crop, interpolation):
    from timm.data import create_transform

    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    transform = create_transform(
        (3, 32, 32), interpolation=interpolation, crop_pct=crop, mean=mean, std=std
    )
    images = [photo(*shape, seed=i) for i in range(2)]
    ((ours, _),) = batches(
        image_set(images), Preprocessing((32, 32), mean, std, interpolation, crop), 2
    )
    theirs = torch.stack([transform(image) for image in images])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [(16, 40), (40, 16)])
@pytest.mark.parametrize("shape", [(64, 64), (30, 90), (90, 30)])
def test_a_frame_that_is_not_square_is_filled_by_the_middle_of_the_image(size, shape):
    ramp = np.linspace(0, 255, shape[0])[None, :, None] * np.ones((shape[1], 1, 3))
    image = Image.fromarray(ramp.astype(np.uint8))
    result = cropped(image, Preprocessing(size, interpolation="bilinear")).float()
    assert result.shape == (3, *size)
    assert result.mean().item() == pytest.approx(127.5, abs=3)  # the ramp's middle
    assert result[0, 0, 0] < result[0, 0, -1]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5, 9])
def test_every_image_comes_once_and_again_at_the_next_iteration(folder, batch_size):
    images = load_data(f"folder:{folder}")
    loader = batches(images, Preprocessing((8, 8)), batch_size=batch_size)
    normalized = in_memory(images, Preprocessing((8, 8), mean=(0.0,) * 3, std=(1.0,) * 3))
    for _ in range(2):
        parts = list(loader)
        assert len(parts) == len(loader) == -(-8 // batch_size)
        assert torch.cat([y for _, y in parts]).tolist() == images.targets.tolist()
        x = torch.cat([x for x, _ in parts])
        assert x.dtype == torch.float32
        mean = torch.tensor((0.485, 0.456, 0.406))[:, None, None]
        std = torch.tensor((0.229, 0.224, 0.225))[:, None, None]
        torch.testing.assert_close(x * std + mean, normalized[0] / 255, rtol=0, atol=1e-6)


def test_the_next_batch_is_prepared_while_the_first_is_used():
    prepared = threading.Event()

    def read(indices):
        if 1 in indices:
            prepared.set()
        return [Image.new("RGB", (8, 8))] * len(indices)

    images = ImageSet("test", "", ("a",), np.zeros(2, np.int64), read)
    iterator = iter(batches(images, Preprocessing((8, 8)), 1))
    next(iterator)
    assert prepared.wait(timeout=10)
    iterator.close()


def test_an_iteration_that_is_given_up_leaves_no_thread(folder):
    before = threading.active_count()
    iterator = iter(batches(load_data(f"folder:{folder}"), Preprocessing((8, 8)), 1))
    next(iterator)
    iterator.close()
    assert threading.active_count() == before


def test_an_error_in_the_thread_reaches_the_user(folder):
    images = load_data(f"folder:{folder}")
    (folder / "dogs" / "0.PNG").write_bytes(b"overwritten since")
    with pytest.raises(ValueError, match="an image cannot be read"):
        list(batches(images, Preprocessing((8, 8)), 2))


def test_a_slice_reads_only_its_own_images():
    seen = []

    def read(indices):
        seen.extend(indices)
        return [Image.new("RGB", (8, 8))] * len(indices)

    images = ImageSet("test", "", ("a",), np.arange(7), read)
    all_of_them = batches(images, Preprocessing((8, 8)), 2)
    part = all_of_them[1::2]
    assert len(part) == 2
    assert [targets.tolist() for _, targets in part] == [[2, 3], [6]]
    assert set(seen) == {2, 3, 6}
    assert all_of_them[-1][1].tolist() == part[1][1].tolist() == [6]


# Statistics.


def test_the_default_preprocessing_makes_mean_0_and_deviation_1(photo):
    images = image_set([photo(8, 8, seed=i) for i in range(20)])
    preprocessing = default_preprocessing(images, (8, 8))
    ((x, _),) = batches(images, preprocessing, 20)
    # The statistics are rounded to four digits.
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3), rtol=1e-3, atol=0)


def test_a_black_image_set_stays_finite():
    images = image_set([Image.new("RGB", (8, 8))] * 2)
    ((x, _),) = batches(images, default_preprocessing(images, (8, 8)), 2)
    assert (x == 0).all()


# Contracts and errors.


def test_a_batch_needs_an_image(folder):
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        batches(load_data(f"folder:{folder}"), Preprocessing((8, 8)), 0)


def test_an_unknown_interpolation_is_refused(folder):
    with pytest.raises(
        ValueError, match=r"must be one of nearest, bilinear, bicubic, lanczos, got 'cubic'"
    ):
        batches(load_data(f"folder:{folder}"), Preprocessing((8, 8), interpolation="cubic"), 4)


def test_a_change_is_given_the_crops_and_their_places(folder):
    seen = []

    def darker(crops, numbers):
        seen.append((tuple(crops.shape), crops.dtype, list(numbers)))
        return crops // 2

    images = load_data(f"folder:{folder}")
    way = Preprocessing((8, 12), mean=(0.0,) * 3, std=(1.0,) * 3)
    for (plain, _), (dark, _) in zip(
        batches(images, way, 3), batches(images, way, 3, change=darker), strict=True
    ):
        torch.testing.assert_close((plain * 255).round() // 2, (dark * 255).round())
    shapes = [((n, 3, 8, 12), torch.uint8) for n in (3, 3, 2)]
    assert [s[:2] for s in seen] == shapes
    assert [s[2] for s in seen] == [[0, 1, 2], [3, 4, 5], [6, 7]]
