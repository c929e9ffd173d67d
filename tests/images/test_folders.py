"""Laws of image folders, ImageNet and its variants, and cue conflicts."""

import shutil

import pytest
from PIL import Image
from timm.data import ImageNetInfo
from torchvision.datasets import ImageFolder

from visprism import InputError, load_data
from visprism.images.image_set import NO_CLASS


@pytest.fixture
def write(tmp_path):
    """Write images of one color, which tells their number, below a folder; returns it."""

    def write(*names):
        for number, name in enumerate(names):
            path = tmp_path / "set" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
        return tmp_path / "set"

    return write


def test_a_folder_agrees_with_torchvision(folder):
    (folder / ".cache").rmdir()  # torchvision would take it for a class
    ours, theirs = load_data(f"folder:{folder}"), ImageFolder(str(folder))
    assert list(ours.class_names) == theirs.classes == ["cats", "dogs"]
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
    assert len(load_data(f"{spec}/train")) == 8  # its classes are no splits


def test_a_class_without_images_keeps_its_index(folder):
    (folder / "birds").mkdir()
    images = load_data(f"folder:{folder}")
    assert images.class_names == ("birds", "cats", "dogs")
    assert set(images.targets.tolist()) == {1, 2}


def test_images_without_class_folders_have_no_labels(write):
    images = load_data(f"folder:{write('0.png', '1.png', '2.png')}")
    assert images.class_names == ()
    assert images.targets.tolist() == [NO_CLASS] * 3
    assert [image.getpixel((0, 0))[0] for image, _ in images] == [0, 1, 2]


def test_reads_real_photographs(real_images):
    images = load_data(f"folder:{real_images}/imagenet-sample", limit=40)
    assert (images.split, images.num_classes, len(images)) == ("val", 1000, 40)
    assert len(set(images.targets.tolist())) == 40
    image, target = images[0]
    assert (image.mode, min(image.size)) == ("RGB", 256)
    assert images.class_names[target].startswith("n0")


def test_imagenet_has_the_order_of_its_identifiers(write):
    identifiers = ImageNetInfo().label_names()
    root = write(*(f"val/{identifiers[i]}/x.png" for i in (0, 283, 999)))
    for identifier in identifiers:
        for split in ("train", "val"):
            (root / split / identifier).mkdir(parents=True, exist_ok=True)
    images = load_data(f"imagenet:{root}")
    assert (images.split, images.source) == ("val", f"imagenet:{root}")
    assert images.targets.tolist() == [0, 283, 999]
    assert images.num_classes == 1000
    assert images.class_names[0] == "tench, Tinca tinca"
    assert images.class_names[283] == "Persian cat"


def test_classes_of_a_variant_have_their_index_in_imagenet(write):
    name = "imagenet_sketch"
    identifiers = ("n01443537", "n01484850", "n07873807")
    root = write(*(f"{identifier}/{i}.png" for identifier in identifiers for i in range(2)))
    images = load_data(f"{name}:{root}")
    assert images.class_subset == (1, 2, 963)  # goldfish, white shark, pizza
    assert images.targets.tolist() == [1, 1, 2, 2, 963, 963]
    assert images.num_classes == 1000
    assert "goldfish" in images.class_names[1]
    assert load_data(f"{name}:{root}", limit=3).class_subset == (1, 2, 963)


def test_shape_and_texture_stand_in_the_name(write):
    names = "cat/cat1-car2.png", "cat/cat2-cat1.png", "knife10-bear3.png"
    images = load_data(f"cue_conflict:{write(*names)}")
    assert images.class_names == ("bear", "car", "cat", "knife")
    assert images.targets.tolist() == [2, 2, 3]
    assert images.textures.tolist() == [1, 2, 0]
    assert images[1][0].getpixel((0, 0)) == (1, 0, 0)


@pytest.mark.parametrize(
    ("kind", "names", "message"),
    [
        ("folder", ["notes/.x.png"], r"must hold .*/CLASS/IMAGE or .*/IMAGE, got no image"),
        ("imagenet", ["cats/0.png"], r"the 1000 classes n01440764, .* got 1 \(cats"),
        ("imagenet_r", ["fish/a.png"], "WordNet identifiers of ImageNet-1k.*got fish"),
        ("cue_conflict", [".x.png"], "must hold images such as cat/cat1-car2"),
        ("cue_conflict", ["cat/cat1-car2.png", "cat/photo.png"], "got photo.png and 0 more"),
    ],
)
def test_other_folders_are_explained(write, kind, names, message):
    with pytest.raises(InputError, match=message):
        load_data(f"{kind}:{write(*names)}")
