"""Laws of CIFAR through torchvision (src/visprism/images/cifar.py)."""

import hashlib
import pickle
from urllib.error import URLError

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, cifar

from visprism import load_data


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


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_without_a_network_the_user_is_told_where_to_put_it(name, tmp_path, monkeypatch):
    def offline(*_args, **_options):
        raise URLError("no network")

    monkeypatch.setattr(cifar, "download_and_extract_archive", offline)
    monkeypatch.setenv("VISPRISM_HOME", str(tmp_path))
    with pytest.raises(
        ValueError, match=rf"{name} is not in .*no network.*Put its folder cifar-10.* there"
    ):
        load_data(name)


@pytest.mark.usefixtures("stored")
def test_an_unknown_split():
    with pytest.raises(
        ValueError, match="split of cifar10 must be one of train, test, got 'val'"
    ):
        load_data("cifar10", split="val")
