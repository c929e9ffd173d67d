"""Laws of CIFAR and of stored sets of corrupted images."""

import hashlib
import pickle
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import CIFAR10, cifar

from visprism import InputError, Preprocessing, batches, load_data

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


def test_a_severity_of_cifar_is_its_part_of_the_file(cifar_c):
    severity = 4
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


def test_files_of_another_kind_are_refused(cifar_c):
    path, pixels = cifar_c
    np.save(path / "snow.npy", pixels[..., 0])
    with pytest.raises(InputError, match=r"must hold images .*, got uint8 of shape \(20, 32,"):
        load_data(f"cifar10_c:{path}?corruption=snow")
    np.save(path / "fog.npy", pixels[:-1])
    with pytest.raises(InputError, match=r"got 19 images in .*npy and 20 labels"):
        load_data(f"cifar10_c:{path}?corruption=fog")


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Two files like those of CIFAR-10, of 6 and 3 images, where torchvision looks for them."""
    folder = tmp_path / "data" / CIFAR10.base_folder
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (9, 3, 32, 32), np.uint8)

    def store(name, content):
        (folder / name).write_bytes(pickle.dumps(content))
        return name, hashlib.md5((folder / name).read_bytes()).hexdigest()

    train = store("train", {"data": pixels[:6].reshape(6, -1), "labels": [0, 1, 2, 0, 1, 2]})
    test = store("test", {"data": pixels[6:].reshape(3, -1), "labels": [2, 1, 0]})
    name, digest = store("meta", {"label_names": ["plane", "car", "bird"]})
    monkeypatch.setattr(CIFAR10, "train_list", [train])
    monkeypatch.setattr(CIFAR10, "test_list", [test])
    monkeypatch.setattr(
        CIFAR10, "meta", {"filename": name, "key": "label_names", "md5": digest}
    )
    monkeypatch.setenv("VISPRISM_HOME", str(tmp_path))
    return pixels


@pytest.mark.parametrize(
    ("split", "rows", "targets"),
    [("train", slice(0, 6), [0, 1, 2, 0, 1, 2]), (None, slice(6, 9), [2, 1, 0])],
)
def test_reads_what_torchvision_stores(stored, split, rows, targets):
    images = load_data("cifar10", split=split)
    assert images.class_names == ("plane", "car", "bird")
    assert images.name == f"cifar10 ({split or 'test'})"
    assert images.targets.tolist() == targets
    read = np.stack([np.asarray(image) for image, _ in images])
    np.testing.assert_array_equal(read, stored[rows].transpose(0, 2, 3, 1))


def test_without_a_network_the_user_is_told_where_to_put_it(tmp_path, monkeypatch):
    def offline(*_args, **_options):
        raise URLError("no network")

    monkeypatch.setattr(cifar, "download_and_extract_archive", offline)
    monkeypatch.setenv("VISPRISM_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"cifar100 is not in .*no network.*Put its folder"):
        load_data("cifar100")
