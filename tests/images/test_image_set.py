"""Laws of image sets, of loading them by name, and of their parts and statistics."""

import numpy as np
import pytest
from PIL import Image

from visprism import ImageSet, load_data, statistics, stratified
from visprism.images.image_set import NO_CLASS, held_out, nested_order, sample


@pytest.mark.parametrize("counts", [(5, 5, 5), (90, 10), (300, 20, 1)])
def test_every_prefix_has_the_class_frequencies_of_the_data(counts):
    targets = np.repeat(np.arange(len(counts)), counts)  # sorted by class, as a folder is
    order = nested_order(targets, seed=1)
    assert sorted(order) == list(range(len(targets)))
    for limit in range(1, len(targets) + 1):
        seen = np.bincount(targets[order[:limit]], minlength=len(counts))
        assert (
            np.abs(seen - limit * np.array(counts) / len(targets)).max() <= len(counts) / 2 + 1
        )
    assert sample(targets, 7, seed=1).tolist() == order[:7].tolist()


def test_the_accuracy_of_a_sample_is_the_accuracy_of_all_images():
    targets = np.repeat([0, 1], [900, 100])  # a model that always answers 0: accuracy 90%
    accuracies = [(targets[sample(targets, 50, seed=s)] == 0).mean() for s in range(200)]
    assert abs(np.mean(accuracies) - 0.9) < 1e-3
    assert np.std(accuracies) < 0.5 * np.sqrt(0.9 * 0.1 / 50)  # stratified, not only random


def test_a_limit_draws_from_the_whole_class_by_seed():
    targets = np.repeat(np.arange(2), 1000)
    first, again, other = (sample(targets, 40, seed=seed) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()
    # Twenty uniform draws of 0 ... 999 have a mean of 500 with a deviation of 65.
    assert abs(first[first < 1000].mean() - 500) < 3 * 65


def test_a_subset_keeps_each_image_with_its_target(folder):
    images = load_data(f"folder:{folder}")
    part = images.subset(np.array([6, 1])).subset(np.array([1, 0]))
    assert [target for _, target in part] == [0, 1]
    assert part[0][0].tobytes() == images[1][0].tobytes()
    assert part[1][0].tobytes() == images[6][0].tobytes()


def test_a_path_is_a_folder_of_images(folder, monkeypatch):
    named = load_data(f"folder:{folder}?subset=0.5")
    images = load_data(f"{folder}?subset=0.5")
    assert images.source == named.source
    assert images.targets.tolist() == named.targets.tolist()
    (picture,) = load_data(f"{folder}/dogs/2.PNG")
    assert picture[1] == NO_CLASS
    assert picture[0].tobytes() == load_data(str(folder))[7][0].tobytes()
    monkeypatch.chdir(folder.parent)
    (folder.parent / "shapes").symlink_to(folder)  # a name of data has priority
    assert load_data("shapes").source == "shapes"


def test_unreadable_images_are_named_and_counted_before_any_work(folder):
    (folder / "cats" / "0.PNG").write_bytes(b"")
    cut = folder / "dogs" / "2.PNG"
    cut.write_bytes(cut.read_bytes()[:-40])
    with pytest.raises(
        ValueError,
        match=r"2 of 8 images of folder:.*cats/0\.PNG \(.*dogs/2\.PNG.*skip_bad=True",
    ):
        load_data(f"folder:{folder}")
    with pytest.raises(ValueError, match="1 of 2 images"):  # the first and the fifth
        load_data(f"folder:{folder}", checked=2)
    assert len(load_data(f"folder:{folder}", checked=2, skip_bad=True)) == 6


def test_skipping_leaves_out_the_unreadable_ones_and_says_so(folder):
    (folder / "cats" / "1.PNG").write_bytes(b"no image")
    images = load_data(f"folder:{folder}", skip_bad=True)
    assert images.targets.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert len(images.skipped) == 1
    assert images.skipped[0].startswith("cats/1.PNG")
    assert images.name == f"folder:{folder}, 1 unreadable left out"
    assert [target for _, target in images] == images.targets.tolist()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("shapes?target=color", "target must be shape or texture, got 'color'"),
        ("cifar10_c:x?severity=6", r"severity must be 1 \(mild\) to 5 \(severe\), got 6"),
        ("folder:here.png", "must be an existing folder, got here.png"),
        ("pyproject.toml", "must be an existing folder, got pyproject.toml"),
        ("shape", r"unknown data 'shape'\. Did you mean shapes\?"),
        ("folder", "data folder must have a path, got 'folder'. Write folder:PATH"),
        ("shapes:here", "data shapes must have no path, got 'shapes:here'"),
        ("shapes?sise=64", "options of data shapes must be of size, target, cues, seed,"),
        ("cifar10?size=64", "options of data cifar10 must be of subset, got 'size'"),
        ("shapes?subset=much", "subset must be a fraction such as 0.1, got 'much'"),
    ],
)
def test_a_wrong_name_or_option_is_explained(spec, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_data(spec)


@pytest.fixture(scope="module")
def uneven():
    """100, 37, 2 images of three classes, shuffled; an image's color is its number."""
    targets = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [100, 37, 2]))
    return ImageSet(
        source="uneven",
        split="train",
        class_names=("a", "b", "c"),
        targets=targets,
        read=lambda indices: [Image.new("RGB", (2, 2), (i, 0, 0)) for i in indices],
    )


def numbers(images):
    return [image.getpixel((0, 0))[0] for image, _ in images]


@pytest.mark.parametrize("fraction", [0.01, 0.25])
def test_every_class_keeps_the_same_fraction_and_the_rest_is_left(uneven, fraction):
    part = stratified(uneven, fraction, seed=3)
    counts = np.bincount(part.targets, minlength=3).tolist()
    assert counts == [max(1, round(fraction * n)) for n in (100, 37, 2)]
    indices = numbers(part)
    assert indices == sorted(set(indices))
    assert part.targets.tolist() == uneven.targets[indices].tolist()
    assert set(indices) < set(numbers(stratified(uneven, fraction + 0.1, seed=3)))
    rest, chosen = held_out(uneven, fraction, seed=3)
    assert numbers(chosen) == indices
    assert sorted([*numbers(rest), *indices]) == sorted(numbers(uneven))


def test_every_data_set_takes_a_fraction_as_an_option(folder):
    part = load_data(f"folder:{folder}?subset=0.6")
    assert part.targets.tolist() == [0, 0, 0, 1, 1]
    assert part.source == f"folder:{folder}?subset=0.6"
    shapes = load_data("shapes?size=16&subset=0.001&target=texture", split="train")
    assert np.bincount(shapes.targets).tolist() == [5] * 10
    assert shapes.source == "shapes?size=16&target=texture&subset=0.001"
    assert shapes[0][0].size == (16, 16)


def test_statistics_are_those_of_all_pixels(folder, photo):
    photo(width=31, height=17, seed=99).save(folder / "cats" / "9.PNG")  # of another size
    images = load_data(f"folder:{folder}")
    pixels = np.concatenate([np.asarray(image).reshape(-1, 3) for image, _ in images]) / 255
    mean, std = statistics(images)
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std(0), rtol=1e-12)
