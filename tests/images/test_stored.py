"""Laws of the stored corrupted sets (src/visprism/images/stored.py)."""

import numpy as np
import pytest
from PIL import Image

from visprism import InputError, Preprocessing, batches, load_data
from visprism.images.image_set import NO_CLASS

IMAGES = 4  # of each severity


@pytest.fixture
def cifar_c(tmp_path):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (5 * IMAGES, 32, 32, 3), np.uint8)
    np.save(tmp_path / "fog.npy", pixels)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(IMAGES, dtype=np.uint8), 5))
    return tmp_path, pixels


@pytest.fixture
def imagenet_c(tmp_path, photo):
    for name in ("cat", "dog"):
        folder = tmp_path / "snow" / "2" / name
        folder.mkdir(parents=True)
        photo(224, 224, seed=len(list(tmp_path.rglob("*")))).save(folder / "a.png")
    return tmp_path


@pytest.mark.parametrize("severity", [1, 5])
def test_a_severity_of_cifar_is_its_part_of_the_file(cifar_c, severity):
    path, pixels = cifar_c
    images = load_data(f"cifar10_c:{path}?corruption=fog&severity={severity}")
    part = pixels[(severity - 1) * IMAGES : severity * IMAGES]
    assert len(images) == IMAGES
    assert images.targets.tolist() == [0, 1, 2, 3]
    for i in range(IMAGES):
        np.testing.assert_array_equal(np.array(images[i][0]), part[i])
    assert images.num_classes == 10
    assert load_data(f"cifar100_c:{path}?corruption=fog").num_classes == 100


def test_imagenet_is_folders_and_is_not_resized_again(imagenet_c):
    images = load_data(f"imagenet_c:{imagenet_c}?corruption=snow&severity=2")
    assert images.class_names == ("cat", "dog")
    way = Preprocessing((224, 224), mean=(0.0,) * 3, std=(1.0,) * 3, crop=0.875)
    (pixels, _) = batches(images, way, 2)[0]
    stored = np.array(Image.open(imagenet_c / "snow" / "2" / "cat" / "a.png"))
    np.testing.assert_allclose(pixels[0].permute(1, 2, 0) * 255, stored, atol=1e-3)


def test_frames_of_sequences_have_no_labels(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (3, 7, 32, 32, 3), np.uint8)
    np.save(tmp_path / "tilt.npy", frames)
    images = load_data(f"cifar10_p:{tmp_path}?perturbation=tilt&frame=6")
    assert (images.targets == NO_CLASS).all()
    np.testing.assert_array_equal(np.array(images[2][0]), frames[2, 6])
    with pytest.raises(InputError, match="frame of tilt must be 0 to 6, got 7"):
        load_data(f"cifar10_p:{tmp_path}?perturbation=tilt&frame=7")


def test_a_truncated_file_is_told(cifar_c):
    path, _ = cifar_c
    content = (path / "fog.npy").read_bytes()
    for length in (0, 50, len(content) // 2):
        (path / "fog.npy").write_bytes(content[:length])
        with pytest.raises(InputError, match=r"fog\.npy of .* is damaged or incomplete"):
            load_data(f"cifar10_c:{path}?corruption=fog")


def test_a_corruption_that_is_not_there_is_told_what_is(cifar_c, imagenet_c):
    path, _ = cifar_c
    with pytest.raises(InputError, match=r"there is no .*snow\.npy; it has fog"):
        load_data(f"cifar10_c:{path}?corruption=snow")
    with pytest.raises(InputError, match=r"there is no .*fog/2/CLASS; it has snow"):
        load_data(f"imagenet_c:{imagenet_c}?corruption=fog&severity=2")
    with pytest.raises(InputError, match=r"it holds no such set"):
        load_data(f"cifar10_c:{path}/nowhere?corruption=snow")


def test_files_of_another_kind_are_refused(cifar_c):
    path, pixels = cifar_c
    np.save(path / "snow.npy", pixels[..., 0])
    with pytest.raises(
        InputError, match=r"must hold images .*, got uint8 of shape \(20, 32, 32\)"
    ):
        load_data(f"cifar10_c:{path}?corruption=snow")
    np.save(path / "fog.npy", pixels[:-1])
    with pytest.raises(InputError, match=r"got 19 images in .*npy and 20 labels"):
        load_data(f"cifar10_c:{path}?corruption=fog")


@pytest.mark.parametrize("name", ["cifar10_c", "cifar100_c", "imagenet_c"])
def test_a_severity_that_is_none_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="severity must be 1 to 5, got 6"):
        load_data(f"{name}:{tmp_path}?severity=6")


def test_there_are_no_splits_but_test(cifar_c):
    path, _ = cifar_c
    assert len(load_data(f"cifar10_c:{path}?corruption=fog", split="test")) == IMAGES
    with pytest.raises(InputError, match="must be one of test, got 'train'"):
        load_data(f"cifar10_c:{path}?corruption=fog", split="train")
