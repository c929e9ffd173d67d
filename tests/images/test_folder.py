"""Laws of image folders (src/visprism/images/folder.py)."""

import shutil

import pytest

from visprism import load_data
from visprism.images.image_set import NO_CLASS


def test_agrees_with_torchvision(folder):
    from torchvision.datasets import ImageFolder

    (folder / ".cache").rmdir()  # torchvision would take it for a class
    ours, theirs = load_data(f"folder:{folder}"), ImageFolder(str(folder))
    assert list(ours.class_names) == theirs.classes == ["cats", "dogs"]
    assert ours.num_classes == 2
    assert ours.targets.tolist() == theirs.targets
    assert all(a.tobytes() == b.tobytes() for (a, _), (b, _) in zip(ours, theirs, strict=True))


def test_a_split_is_a_folder_between(folder, tmp_path):
    for split, names in (("train", ("cats", "dogs")), ("val", ("dogs",))):
        for name in names:
            shutil.copytree(folder / name, tmp_path / "sets" / split / name)
    spec = f"folder:{tmp_path / 'sets'}"
    assert len(load_data(spec, split="train")) == 8
    val = load_data(spec)
    assert (len(val), val.split, val.class_names) == (3, "val", ("dogs",))
    assert val.name == f"{spec} (val)"
    with pytest.raises(ValueError, match="must be one of train, val, got 'test'"):
        load_data(spec, split="test")
    assert len(load_data(f"{spec}/train")) == 8  # its classes are no splits


def test_hidden_folders_and_files_are_not_classes_and_images(folder, photo):
    photo().save(folder / "cats" / "._0.png")
    images = load_data(f"folder:{folder}")
    assert images.class_names == ("cats", "dogs")
    assert len(images) == 8


def test_a_class_without_images_keeps_its_index(folder):
    (folder / "birds").mkdir()
    images = load_data(f"folder:{folder}")
    assert images.class_names == ("birds", "cats", "dogs")
    assert set(images.targets.tolist()) == {1, 2}


def test_images_may_lie_deeper(folder):
    shutil.move(folder / "dogs" / "0.PNG", folder / "dogs" / "poodles.png")
    (folder / "cats" / "old").mkdir()
    shutil.move(folder / "cats" / "0.PNG", folder / "cats" / "old" / "0.PNG")
    assert load_data(f"folder:{folder}").targets.tolist() == [0] * 5 + [1] * 3


def test_images_without_class_folders_have_no_labels(tmp_path, photo):
    for i in range(3):
        photo(seed=i).save(tmp_path / f"{i}.png")
    images = load_data(f"folder:{tmp_path}", limit=2)
    assert images.class_names == ()
    assert images.targets.tolist() == [NO_CLASS] * 2
    image_set = load_data(f"folder:{tmp_path}")
    assert [image.tobytes() for image, _ in image_set] == [
        photo(seed=i).tobytes() for i in range(3)
    ]


# Contracts and errors.


def test_a_missing_folder():
    with pytest.raises(
        ValueError, match="folder:nowhere must be an existing folder, got nowhere"
    ):
        load_data("folder:nowhere")


def test_an_empty_folder(tmp_path):
    with pytest.raises(ValueError, match=r"must hold .*/CLASS/IMAGE"):
        load_data(f"folder:{tmp_path}")


def test_a_folder_without_splits(folder):
    with pytest.raises(ValueError, match=r"split must be None for .*, got 'val'"):
        load_data(f"folder:{folder}", split="val")


def test_reads_real_photographs(real_images):
    images = load_data(f"folder:{real_images}/imagenet-sample", limit=40)
    assert (images.split, images.num_classes, len(images)) == ("val", 1000, 40)
    assert len(set(images.targets.tolist())) == 40
    image, target = images[0]
    assert (image.mode, min(image.size)) == ("RGB", 256)
    assert images.class_names[target].startswith("n0")
