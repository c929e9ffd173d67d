"""Laws of loading data by name (src/visprism/images/open_data.py, image_set.py)."""

import numpy as np
import pytest

from visprism import load_data
from visprism.images.image_set import SPLITS, balanced, chosen_split

# What a limit selects.


@pytest.mark.parametrize("limit", [1, 3, 10, 11, 25, 30])
def test_a_limit_takes_as_many_of_each_class_as_of_any_other(limit):
    targets = np.repeat(np.arange(10), 3)  # sorted by class, as a folder is
    chosen = balanced(targets, limit)
    counts = np.bincount(targets[chosen], minlength=10)
    assert len(chosen) == len(set(chosen.tolist())) == limit
    assert counts.max() - counts.min() <= 1


def test_a_class_that_is_used_up_leaves_its_share_to_the_others():
    targets = np.array([0] * 2 + [1] * 50 + [2] * 50)
    assert np.bincount(targets[balanced(targets, 30)]).tolist() == [2, 14, 14]


def test_a_smaller_limit_selects_a_part_of_a_larger_one():
    targets = np.arange(100) % 7
    assert set(balanced(targets, 20)) < set(balanced(targets, 50))


def test_a_limit_draws_from_the_whole_class_by_seed():
    targets = np.repeat(np.arange(2), 1000)
    first, again, other = (balanced(targets, 40, seed=seed) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()
    assert first.tolist() == sorted(first.tolist())  # files are read in their own order
    # Twenty uniform draws of 0 ... 999 have a mean of 500 with a deviation of 65.
    assert abs(first[:20].mean() - 500) < 3 * 65


def test_a_limit_above_the_number_of_images_takes_all(folder):
    assert len(load_data(f"folder:{folder}", limit=99)) == 8


def test_a_subset_keeps_each_image_with_its_target(folder):
    images = load_data(f"folder:{folder}")
    part = images.subset(np.array([6, 1])).subset(np.array([1, 0]))
    assert [target for _, target in part] == [0, 1]
    assert part[0][0].tobytes() == images[1][0].tobytes()
    assert part[1][0].tobytes() == images[6][0].tobytes()


# Unreadable images.


def test_unreadable_images_are_named_and_counted_before_any_work(folder):
    (folder / "cats" / "0.PNG").write_bytes(b"")
    cut = folder / "dogs" / "2.PNG"
    cut.write_bytes(cut.read_bytes()[:-40])
    with pytest.raises(
        ValueError,
        match=r"2 of 8 images of folder:.*cats/0\.PNG \(.*dogs/2\.PNG.*skip_bad=True",
    ):
        load_data(f"folder:{folder}")


def test_a_long_list_of_unreadable_images_is_cut_short(folder):
    for path in (folder / "cats").glob("*.PNG"):
        path.write_bytes(b"no")
    with pytest.raises(
        ValueError, match=r"5 of 8 images .*0\.PNG.*2\.PNG \([^)]*\), \.\.\.\. "
    ):
        load_data(f"folder:{folder}")


def test_skipping_leaves_out_the_unreadable_ones_and_says_so(folder):
    (folder / "cats" / "1.PNG").write_bytes(b"no image")
    images = load_data(f"folder:{folder}", skip_bad=True)
    assert images.targets.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert len(images.skipped) == 1
    assert images.skipped[0].startswith("cats/1.PNG")
    assert images.name == f"folder:{folder}, 1 unreadable left out"
    assert [target for _, target in images] == images.targets.tolist()


def test_nothing_is_left_to_skip_to(folder):
    for path in folder.rglob("*.PNG"):
        path.write_bytes(b"no")
    with pytest.raises(ValueError, match=r"8 of 8 images .* cannot be read"):
        load_data(f"folder:{folder}", skip_bad=True)


def test_progress_sees_every_file(folder):
    seen = []

    def watched(items, _label):
        for item in items:
            seen.append(item)
            yield item

    load_data(f"folder:{folder}", limit=5, progress=watched)
    assert seen == [0, 1, 2, 3, 4]


# Names and options.


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("shape", r"unknown data 'shape'\. Did you mean shapes\?"),
        ("folder", "data folder must have a path, got 'folder'. Write folder:PATH"),
        ("shapes:here", "data shapes must have no path, got 'shapes:here'"),
        (
            "shapes?sise=64",
            "options of data shapes must be of size, target, cues, seed, subset, got 'sise'",
        ),
        ("cifar10?size=64", "options of data cifar10 must be of subset, got 'size'"),
        ("shapes?size=32&size=64", "must name the option size once"),
        ("shapes?size=big", "size must be an integer, got 'big'"),
    ],
)
def test_a_wrong_name_or_option_is_explained(spec, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_data(spec)


def test_a_path_without_a_prefix_is_told_the_prefix(folder):
    with pytest.raises(ValueError, match=f"write folder:{folder}"):
        load_data(str(folder))


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_must_be_positive(limit):
    with pytest.raises(ValueError, match=f"limit must be positive, got {limit}"):
        load_data("shapes", limit=limit)


def test_an_unknown_split_lists_those_there_are():
    with pytest.raises(
        ValueError, match="split of shapes must be one of train, test, got 'val'"
    ):
        load_data("shapes", split="val")


def test_without_a_wish_images_are_taken_that_no_model_was_trained_on():
    assert chosen_split(["train", "test"], None, "data") == "test"
    assert chosen_split(["train", "validation"], None, "data") == "validation"
    assert SPLITS[-1] == "train"


def test_strange_splits_have_to_be_chosen():
    with pytest.raises(ValueError, match=r"data has the splits a, b\. Select one"):
        chosen_split(["a", "b"], None, "data")
