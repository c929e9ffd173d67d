"""Laws of parts and statistics (src/visprism/images/subsets.py, statistics.py)."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from visprism import ImageSet, InputError, load_data, statistics, stratified
from visprism.images import held_out


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


# Parts.


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.25, 0.5, 1.0])
def test_every_class_keeps_the_same_fraction(uneven, fraction):
    part = stratified(uneven, fraction)
    counts = np.bincount(part.targets, minlength=3).tolist()
    assert counts == [max(1, round(fraction * n)) for n in (100, 37, 2)]
    indices = numbers(part)
    assert indices == sorted(set(indices))
    assert part.targets.tolist() == uneven.targets[indices].tolist()


def test_a_smaller_fraction_is_a_part_of_a_larger_one(uneven):
    parts = [set(numbers(stratified(uneven, f))) for f in (0.05, 0.1, 0.4, 0.41, 1.0)]
    assert all(small <= large for small, large in pairwise(parts))
    assert len(parts[-1]) == 139


def test_the_seed_draws_others(uneven):
    first, again, other = (numbers(stratified(uneven, 0.2, seed=s)) for s in (3, 3, 4))
    assert first == again != other


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01])
def test_a_fraction_that_is_none_is_refused(uneven, fraction):
    with pytest.raises(InputError, match=r"fraction must be in \(0, 1\], got"):
        stratified(uneven, fraction)


def test_every_data_set_takes_a_fraction_as_an_option(folder):
    part = load_data(f"folder:{folder}?subset=0.6")
    assert part.targets.tolist() == [0, 0, 0, 1, 1]
    assert part.source == f"folder:{folder}?subset=0.6"
    shapes = load_data("shapes?size=16&subset=0.001&target=texture", split="train")
    assert np.bincount(shapes.targets).tolist() == [5] * 10
    assert shapes.source == "shapes?size=16&target=texture&subset=0.001"
    assert shapes[0][0].size == (16, 16)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shapes?subset=2", r"fraction must be in \(0, 1\], got 2\.0"),
        ("shapes?subset=much", "subset must be a fraction such as 0.1, got 'much'"),
        ("shapes?subset=0.1&subset=0.2", "must name the option subset once"),
    ],
)
def test_an_option_that_is_no_fraction_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        load_data(spec)


# Statistics.


def test_statistics_are_those_of_all_pixels(folder, photo):
    photo(width=31, height=17, seed=99).save(folder / "cats" / "9.PNG")  # of another size
    images = load_data(f"folder:{folder}")
    pixels = np.concatenate([np.asarray(image).reshape(-1, 3) for image, _ in images]) / 255
    mean, std = statistics(images)
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std(0), rtol=1e-12)


def test_statistics_of_a_single_color():
    one = ImageSet(
        "red", "", (), np.array([-1]), lambda _: [Image.new("RGB", (300, 9), (255, 51, 1))]
    )
    mean, std = statistics(one)
    assert mean == pytest.approx((1, 0.2, 1 / 255), rel=1e-15)
    assert std == (0, 0, 0)


def test_no_order_of_the_images_changes_the_statistics(folder):
    images = load_data(f"folder:{folder}")
    assert statistics(images) == statistics(images.subset(np.arange(8)[::-1].copy()))


def test_statistics_of_nothing_are_refused(uneven):
    empty = replace(uneven, targets=np.zeros(0, np.int64))
    with pytest.raises(InputError, match=r"uneven \(train\) must have at least one image"):
        statistics(empty)


def test_what_is_held_out_and_the_rest_are_all_images_once(uneven):
    train, validation = held_out(uneven, 0.2, seed=3)
    assert numbers(validation) == numbers(stratified(uneven, 0.2, seed=3))
    assert sorted([*numbers(train), *numbers(validation)]) == sorted(numbers(uneven))


def test_refuses_to_hold_a_whole_class_out(uneven):
    with pytest.raises(InputError, match="must leave a training image in every class"):
        held_out(uneven, 1.0)
