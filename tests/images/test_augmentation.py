"""Laws of augmentation: crops, flips, RandAugment, erasing, mixing and soft targets."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.data import Mixup
from torchvision.transforms import RandomCrop
from torchvision.transforms import functional as F  # noqa: N812

import visprism as vp
from visprism.core.run import stream
from visprism.images.augmented import Mix, cut, draw_mix, mixed, shifted, soft

SMALL = vp.Preprocessing((32, 32), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
RAW = replace(SMALL, mean=(0.0,) * 3, std=(1.0,) * 3)


@pytest.fixture(scope="module")
def shapes():
    return vp.load_data("shapes?size=32", limit=21)


def augmented(images, settings, **options):
    """Bytes of augmented images, and of the plain ones."""
    seen = [
        torch.cat([x for x, _ in vp.batches(images, RAW, 8, augmentation=how, **options)])
        for how in (settings, None)
    ]
    return [(255 * x).round().byte() for x in seen]


def test_the_crop_is_that_of_torchvision_at_the_same_corner(monkeypatch):
    generator = stream(0, "crop")
    images = torch.randint(0, 256, (20, 3, 9, 12), dtype=torch.uint8, generator=generator)
    corner = torch.randint(0, 9, (2, 20), generator=generator)
    corner[:, :4] = torch.tensor([[0, 8, 0, 4], [0, 8, 8, 4]])  # the corners, and the middle
    flip = torch.arange(20) % 3 == 0
    got = shifted(images, corner, flip, 4)
    for i, (top, left) in enumerate(corner.T.tolist()):
        monkeypatch.setattr(RandomCrop, "get_params", lambda *_, at=(top, left): (*at, 9, 12))
        wanted = RandomCrop((9, 12), padding=4)(images[i])
        assert torch.equal(got[i], F.hflip(wanted) if flip[i] else wanted)
    assert torch.equal(shifted(images, corner * 0 + 4, flip & False, 4), images)


def test_half_of_the_images_are_flipped():
    images = vp.load_data("shapes?size=32", limit=400)
    seen, plain = augmented(images, vp.Augmentation(flip=0.5))
    flipped = (seen == plain.flip(3)).flatten(1).all(1)
    assert ((seen == plain).flatten(1).all(1) | flipped).all()
    assert int(flipped.sum()) == pytest.approx(200, abs=40)


def test_rand_augment_leaves_out_operations_by_their_probability():
    images = vp.load_data("shapes?size=32", limit=400)
    seen, plain = augmented(images, vp.Augmentation(rand_augment="rand-m9-n2-mstd1.0"))
    same = (seen == plain).flatten(1).all(1).double().mean()
    assert 0.25 - 0.09 < same < 0.45  # both are left out in 1/4, and some change nothing
    seen, plain = augmented(
        images.subset(np.arange(8)), vp.Augmentation(rand_augment="rand-p0.0")
    )
    assert torch.equal(seen, plain)


@pytest.mark.parametrize("mode", ["const", "pixel"])
def test_erased_rectangles_are_zero_or_normal_noise_after_normalization(mode):
    images = vp.load_data("shapes?size=32", limit=400)
    how = vp.Augmentation(erasing=0.25, erasing_mode=mode)
    seen = torch.cat([x for x, _ in vp.batches(images, SMALL, 64, augmentation=how)])
    plain = torch.cat([x for x, _ in vp.batches(images, SMALL, 64)])
    box = (seen != plain).any(1)
    erased = box.flatten(1).any(1)
    assert int(erased.sum()) == pytest.approx(100, abs=35)
    area = box[erased].double().mean((1, 2))
    assert float(area.mean()) == pytest.approx((0.02 + 1 / 3) / 2, abs=0.03)
    values = seen[box[:, None].expand_as(seen)]
    if mode == "const":
        assert not values.any()
    else:
        assert float(values.mean()) == pytest.approx(0, abs=0.02)
        assert float(values.std()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("cutmix", "seed"), [(False, 0), (True, 1), (True, 2)])
def test_mixing_is_that_of_timm_at_the_same_draw(cutmix, seed, monkeypatch):
    images = torch.randn(6, 3, 20, 14, generator=stream(0, "images"))
    generator = np.random.default_rng(seed)
    fraction, center = generator.beta(1, 1), generator.random(2).tolist()
    monkeypatch.setattr(np.random, "rand", lambda: 0.0 if cutmix else 0.9)
    monkeypatch.setattr(np.random, "beta", lambda *_: fraction)
    places = iter(int(side * c) for side, c in zip((20, 14), center, strict=True))
    monkeypatch.setattr(np.random, "randint", lambda *_, size: next(places))  # noqa: ARG005
    targets = torch.tensor([0, 3, 1, 1, 4, 2])
    timm = Mixup(1.0, 0.8, label_smoothing=0.1, num_classes=5)
    wanted, wanted_soft = timm(images.clone(), targets)
    mix = cut(fraction, center, (20, 14)) if cutmix else Mix(fraction)
    assert torch.equal(mixed(images.clone(), images.flip(0), mix), wanted)
    rows = soft(targets, 5, 0.1)
    torch.testing.assert_close(mix.weight * rows + (1 - mix.weight) * rows.flip(0), wanted_soft)


def test_mixup_and_cutmix_take_turns_and_a_part_is_left_alone():
    how = vp.Augmentation(mixup=1.0, cutmix=0.8, mix_probability=0.5, switch_probability=0.2)
    mixes = [draw_mix(how, (32, 32), stream(0, "mix", i)) for i in range(2000)]
    cuts = sum(mix.box is not None for mix in mixes)
    alone = sum(mix == Mix() for mix in mixes)
    assert alone == pytest.approx(1000, abs=4 * np.sqrt(500))
    assert cuts == pytest.approx(200, abs=4 * np.sqrt(180))
    parts = np.array([mix.weight for mix in mixes if mix.box is None and mix != Mix()])
    assert np.quantile(parts, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.07)
    only = [vp.Augmentation(mixup=0.4), vp.Augmentation(cutmix=0.4), vp.Augmentation()]
    kinds = [
        {draw_mix(how, (8, 8), stream(0, "mix", i)).box is None for i in range(50)}
        for how in only
    ]
    assert kinds == [{True}, {False}, {True}]


def test_images_and_targets_of_a_batch_are_mixed_by_one_weight(shapes):
    how = vp.Augmentation(mixup=1.0)
    seen, probabilities = next(iter(vp.batches(shapes, SMALL, 20, augmentation=how)))
    plain, targets = next(iter(vp.batches(shapes, SMALL, 20)))
    rows = soft(targets, probabilities.shape[1], 0.0)
    away = plain - plain.flip(0)
    weight = float(((seen - plain.flip(0)) * away).sum() / away.square().sum())
    assert 0 < weight < 1
    torch.testing.assert_close(seen, weight * plain + (1 - weight) * plain.flip(0))
    torch.testing.assert_close(probabilities, weight * rows + (1 - weight) * rows.flip(0))


def test_every_pass_and_every_process_sees_the_same_and_each_batch_its_own(shapes):
    data = vp.fixed_augmentation(shapes, SMALL, 8, 10)
    first, again = list(data), list(data)
    for one, other in zip(first, [*again[:1], *data[1:]], strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    same = shapes.subset(np.array([0, 1, 2, 3] * 2))
    one, other = vp.fixed_augmentation(same, SMALL, 4, 10)
    assert not torch.allclose(one[0], other[0])
    assert not torch.allclose(one[0], vp.fixed_augmentation(same, SMALL, 4, 10, seed=1)[0][0])


def test_the_global_generators_are_as_they_were(shapes):
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    vp.fixed_augmentation(shapes, SMALL, 8, 10)[0]
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flip": 1.5}, r"flip must be a number from 0 to 1, got 1\.5"),
        ({"area": 0.0}, "area must be a number above 0 and of at most 1, got 0"),
        ({"erasing_mode": "const"}, "erasing_mode must be pixel without erasing"),
        ({"rand_augment": "rand-m9-x2"}, "like rand-m9-n2-mstd1.0 .*, got 'rand-m9-x2'"),
    ],
)
def test_wrong_settings_are_explained(settings, message):
    with pytest.raises(vp.InputError, match=message):
        vp.Augmentation(**settings)
