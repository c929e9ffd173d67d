"""Laws of mixing, framing and erasing (src/visprism/data/augmentation)."""

import numpy as np
import pytest
import torch
from timm.data import Mixup, random_erasing
from torchvision.transforms import RandomCrop
from torchvision.transforms import functional as F  # noqa: N812

from visprism import Augmentation, InputError
from visprism.core.run import stream
from visprism.data.augmentation import STRONG
from visprism.data.augmentation.crops import framed
from visprism.data.augmentation.erasing import boxes, draw_boxes, erased
from visprism.data.augmentation.mixing import Mix, batch_share, cut, draw_mix, mixed, soft


@pytest.fixture
def images():
    return torch.randn(6, 3, 20, 14, generator=stream(0, "images"))


# Mixing.


@pytest.mark.parametrize("cutmix", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_mixing_is_that_of_timm_at_the_same_draw(images, cutmix, seed, monkeypatch):
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
    got = mixed(images.clone(), images.flip(0), mix)
    assert torch.equal(got, wanted)
    rows = soft(targets, 5, 0.1)
    torch.testing.assert_close(mix.weight * rows + (1 - mix.weight) * rows.flip(0), wanted_soft)


def test_the_box_leaves_the_part_that_the_target_says(images):
    mix = cut(0.7, (0.02, 0.5), (20, 14))  # over the upper border
    got = mixed(images.clone(), images.flip(0), mix)
    unchanged = (got == images).all(1).double().mean((1, 2))
    torch.testing.assert_close(unchanged, torch.full((6,), mix.weight, dtype=torch.float64))
    assert mix.weight > 0.75


def test_mixup_and_cutmix_take_turns_and_a_part_is_left_alone():
    how = Augmentation(mixup=1.0, cutmix=0.8, mix_probability=0.5, switch_probability=0.2)
    mixes = [draw_mix(how, (32, 32), stream(0, "mix", i)) for i in range(2000)]
    cuts = sum(mix.box is not None for mix in mixes)
    alone = sum(mix == Mix() for mix in mixes)
    assert alone == pytest.approx(1000, abs=4 * np.sqrt(500))
    assert cuts == pytest.approx(200, abs=4 * np.sqrt(180))
    parts = np.array([mix.weight for mix in mixes if mix.box is None and mix != Mix()])
    assert np.quantile(parts, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.07)


def test_one_of_the_two_may_be_off():
    only = [Augmentation(mixup=0.4), Augmentation(cutmix=0.4), Augmentation()]
    boxes = [
        {draw_mix(how, (8, 8), stream(0, "mix", i)).box is None for i in range(50)}
        for how in only
    ]
    assert boxes == [{True}, {False}, {True}]
    assert draw_mix(only[2], (8, 8), stream(0, "mix")).weight == 1


def test_soft_targets_by_hand():
    rows = soft(torch.tensor([2, 0]), 4, 0.2)
    wanted = torch.tensor([[0.05, 0.05, 0.85, 0.05], [0.85, 0.05, 0.05, 0.05]])
    torch.testing.assert_close(rows, wanted)


# Crop and flip.


def test_the_crop_is_that_of_torchvision_at_the_same_corner(monkeypatch):
    generator = stream(0, "crop")
    images = torch.randint(0, 256, (20, 3, 9, 12), dtype=torch.uint8, generator=generator)
    corner = torch.randint(0, 9, (2, 20), generator=generator)
    corner[:, :4] = torch.tensor([[0, 8, 0, 4], [0, 8, 8, 4]])  # the corners, and the middle
    flip = torch.arange(20) % 3 == 0
    got = framed(images, corner, flip, 4)
    for i, (top, left) in enumerate(corner.T.tolist()):
        monkeypatch.setattr(RandomCrop, "get_params", lambda *_, at=(top, left): (*at, 9, 12))
        wanted = RandomCrop((9, 12), padding=4)(images[i])
        assert torch.equal(got[i], F.hflip(wanted) if flip[i] else wanted)
    assert torch.equal(framed(images, corner * 0 + 4, flip & False, 4), images)


# Erasing.


class Given:
    """What timm takes for Python's `random`: the numbers that ours were given."""

    def __init__(self, u):
        self.chance, self.rows, self.attempt, self.turn = float(u[0]), u[1:].view(4, 10), 0, 0

    def random(self):
        return self.chance

    def uniform(self, low, high):
        self.turn += 1
        self.attempt = (self.turn - 1) // 2
        return low + (high - low) * float(self.rows[(self.turn - 1) % 2, self.attempt])

    def randint(self, low, high):
        row, self.turn = 2 + self.turn % 2, self.turn + 1
        return low + int(float(self.rows[row, self.attempt]) * (high - low + 1))


def test_a_box_is_that_of_timm_at_the_same_draw(monkeypatch):
    u = torch.rand(41, 60, generator=stream(3, "erase"), dtype=torch.float64)
    erased = boxes(u, 0.6, (20, 9))
    for i, (top, bottom, left, right) in enumerate(erased.T.tolist()):
        monkeypatch.setattr(random_erasing, "random", Given(u[:, i]))
        mark = random_erasing.RandomErasing(0.6, device="cpu")(torch.ones(1, 20, 9))
        ours = torch.ones(1, 20, 9)
        ours[:, top:bottom, left:right] = 0
        assert torch.equal(ours, mark)
    assert 20 < int((erased[1] > 0).sum()) < 60


def test_what_is_erased_is_normal_noise_and_the_rest_stays():
    big = torch.full((3, 3, 200, 200), 9.0)
    box = torch.tensor([[0, 10, 0], [200, 200, 0], [0, 20, 0], [200, 200, 0]])
    got = erased(big.clone(), box, torch.tensor([1, 2, 3]), "pixel")
    assert (got[2] == 9).all()
    assert (got[1, :, :10] == 9).all()
    assert (got[1, :, :, :20] == 9).all()
    assert got[0].mean().abs() < 4 / np.sqrt(got[0].numel())
    assert got[0].std() == pytest.approx(1, abs=0.02)
    alone = erased(big[:1].clone(), box[:, :1], torch.tensor([1]), "pixel")
    assert torch.equal(alone[0], got[0])


def test_a_constant_box_is_that_of_timm_at_the_same_draw(monkeypatch):
    """timm's mode "const", the mode of the paper's code: zero after normalization."""
    u = torch.rand(41, 30, generator=stream(4, "erase"), dtype=torch.float64)
    images = torch.randn(30, 3, 20, 9, generator=stream(5, "erase"))
    got = erased(images.clone(), boxes(u, 0.6, (20, 9)), torch.zeros(30).long(), "const")
    for i in range(30):
        monkeypatch.setattr(random_erasing, "random", Given(u[:, i]))
        peer = random_erasing.RandomErasing(0.6, mode="const", device="cpu")
        assert torch.equal(got[i], peer(images[i].clone()))
    assert 5 < int((got == 0).flatten(1).any(1).sum()) < 30


def test_the_number_of_boxes_follows_the_probability():
    erased = draw_boxes(0.25, 2000, (32, 32), stream(0, "erase"))
    high, wide = erased[1] - erased[0], erased[3] - erased[2]
    assert int((high > 0).sum()) == pytest.approx(500, abs=4 * np.sqrt(375))
    area = (high * wide)[high > 0] / 1024
    assert area.double().mean() == pytest.approx((0.02 + 1 / 3) / 2, abs=0.02)
    assert not draw_boxes(0.0, 9, (32, 32), stream(0, "erase")).any()


# Shares.


@pytest.mark.parametrize("count", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_shares_are_the_batch_and_partners_are_at_hand(count, world):
    shares = [batch_share(count, (rank, world), mixes=True) for rank in range(world)]
    indices = [s.places[s.assigned] for s in shares]
    assert sorted(torch.cat(indices).tolist()) == list(range(count))
    assert max(map(len, indices)) - min(map(len, indices)) <= 1
    for s, mine in zip(shares, indices, strict=True):
        assert torch.equal(s.places[s.partner], count - 1 - mine)
        assert len(s.places) <= len(mine) + 2
        assert len(batch_share(count, (0, 1), mixes=False).places) == count


# Errors.


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flip", 1.5, r"flip must be in \[0, 1\], got 1\.5"),
        ("smoothing", -0.1, r"smoothing must be in \[0, 1\), got -0\.1"),
        ("mixup", -1.0, r"mixup must not be negative, got -1\.0"),
        ("padding", -4, "padding must not be negative, got -4"),
        ("area", 0.0, r"area must be in \(0, 1\], got 0"),
    ],
)
def test_settings_outside_of_their_range_are_refused(field, value, message):
    with pytest.raises(InputError, match=message):
        Augmentation(**{field: value})


def test_the_settings_of_the_paper():
    wanted = Augmentation(
        padding=4,
        flip=0.5,
        rand_augment="rand-m9-n2-mstd1.0",
        mixup=1.0,
        cutmix=0.8,
        mix_probability=1.0,
        switch_probability=0.5,
        smoothing=0.1,
    )
    assert wanted == STRONG
