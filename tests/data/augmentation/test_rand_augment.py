"""Laws of RandAugment (src/visprism/data/augmentation/{rand_augment,photometric,geometric}.py).

Each operation is compared with timm's, which Pillow carries out, at the same draw: every byte
is the same.
"""

import math
import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from timm.data import auto_augment as peer

from visprism import Augmentation, InputError
from visprism.core.run import stream
from visprism.data.augmentation import RandAugment, read_rand_augment
from visprism.data.augmentation.draws import draw
from visprism.data.augmentation.rand_augment import OFF, OPERATIONS, rand_augmented, strength

FILL = (125, 122, 113)


def pictures(number, height, width):
    """Noise, blurred noise, and images of a single color or of two."""
    random_bytes = np.random.default_rng(0)
    images = []
    for i in range(number):
        pixels = random_bytes.integers(0, 256, (height, width, 3)).astype(np.uint8)
        if i % 6 == 5:
            pixels[:] = pixels[0, 0]
        if i % 12 == 5:
            pixels[: height // 2] = 255 - pixels[0, 0]
        picture = Image.fromarray(pixels)
        images.append(picture.filter(ImageFilter.GaussianBlur(i % 4)) if i % 4 else picture)
    return images


def as_tensor(images):
    return torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) for p in images])


def by_timm(name, picture, level, minus, cubic, monkeypatch):
    """What timm makes of a picture, with its coin for the sign handed to it."""
    monkeypatch.setattr(peer, "_randomly_negate", lambda value: -value if minus else value)
    argument = peer.LEVEL_TO_ARG[name]
    arguments = argument(level, {"translate_pct": 0.45}) if argument else ()
    resample = Image.Resampling.BICUBIC if cubic else Image.Resampling.BILINEAR
    return peer.NAME_TO_OP[name](picture, *arguments, fillcolor=FILL, resample=resample)


# Against another implementation.


@pytest.mark.parametrize("size", [(32, 32), (23, 30)])
@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("number", range(15), ids=OPERATIONS)
def test_every_byte_is_that_of_timm_and_pillow(number, increasing, size, monkeypatch):
    names = peer._RAND_INCREASING_TRANSFORMS if increasing else peer._RAND_TRANSFORMS
    images = pictures(36, *size)
    generator = stream(0, "levels", number)
    level = 2.5 + 7.5 * torch.rand(36, generator=generator, dtype=torch.float64)
    level[:3] = 10.0  # where many are cut off
    if increasing:
        level.clamp_(max=9.99)  # Pillow 13 refuses to keep no bit at all
    minus, cubic = torch.rand(2, 36, generator=generator) < 0.5
    got = rand_augmented(
        as_tensor(images),
        torch.full((1, 36), number),
        level[None],
        minus[None],
        cubic[None],
        fill=FILL,
        increasing=increasing,
    )
    arguments = zip(images, level.tolist(), minus.tolist(), cubic.tolist(), strict=True)
    wanted = [by_timm(names[number], *values, monkeypatch) for values in arguments]
    assert torch.equal(got, as_tensor(wanted))


def test_the_operations_are_those_of_timm_in_its_order():
    def plain(name):
        return name.replace("_", "").lower()

    timm = [plain(name).removesuffix("rel") for name in peer._RAND_TRANSFORMS]
    assert [plain(name) for name in OPERATIONS] == timm


def test_posterising_to_no_bit_is_black():
    assert strength("posterize", *torch.tensor([[1.0], [1.0]]).double(), increasing=False) == 0
    black = rand_augmented(
        torch.full((1, 3, 4, 4), 200, dtype=torch.uint8),
        torch.tensor([[OPERATIONS.index("posterize")]]),
        *(torch.tensor([[value]]) for value in (np.float64(1), False, False)),
        fill=FILL,
        increasing=False,
    )
    assert not black.any()


# What leaves it unchanged.


def test_an_image_is_the_same_alone_and_among_others():
    images = as_tensor(pictures(40, 16, 16))
    how = Augmentation(rand_augment="rand-m9-n3-mstd1.0")
    operations = draw(how, 40, (16, 16), stream(0, "draw"))

    def after(rows):
        subset = operations.of(rows)
        return rand_augmented(
            images[rows],
            subset.operation,
            subset.magnitude,
            subset.negative,
            subset.cubic,
            fill=FILL,
            increasing=False,
        )

    augmented = after(torch.arange(40))
    assert not torch.equal(augmented, images)
    for i in range(40):
        assert torch.equal(after(torch.tensor([i]))[0], augmented[i])


def test_images_without_an_operation_stay_as_they_are():
    images = as_tensor(pictures(5, 8, 8))
    still = torch.full((2, 5), OFF), torch.zeros(2, 5).double(), *torch.zeros(2, 2, 5).bool()
    assert torch.equal(rand_augmented(images, *still, fill=FILL, increasing=False), images)


def test_no_operation_waits_for_the_device_of_the_images():
    # A tensor of the device "meta" has no values: whoever asks for one of them fails.
    how = Augmentation(rand_augment="rand-m9-n2-mstd1.0")
    operations = draw(how, 200, (16, 16), stream(0, "draw"))
    assert set(operations.operation.unique().tolist()) == {OFF, *range(15)}
    nowhere = torch.empty(200, 3, 16, 16, dtype=torch.uint8, device="meta")
    images = rand_augmented(
        nowhere,
        operations.operation,
        operations.magnitude,
        operations.negative,
        operations.cubic,
        fill=FILL,
        increasing=False,
    )
    assert images.device.type == "meta"
    assert images.shape == nowhere.shape


# What is drawn.


def test_operations_and_magnitudes_are_distributed_as_those_of_timm(monkeypatch):
    count = 20_000
    operations = draw(
        Augmentation(rand_augment="rand-m9-n2-mstd1.0"), count, (8, 8), stream(0, "draw")
    )
    carried_out = operations.operation != OFF
    sigma = math.sqrt(0.25 / (2 * count))
    assert abs(carried_out.double().mean() - 0.5) < 4 * sigma
    shares = torch.bincount(operations.operation[carried_out], minlength=15) / carried_out.sum()
    assert (shares - 1 / 15).abs().max() < 4 * math.sqrt(1 / 15 / count)
    for coin in (operations.negative, operations.cubic):
        assert abs(coin.double().mean() - 0.5) < 4 * sigma
    # timm's, by its own code: it hands each magnitude to the operation.
    seen = []
    monkeypatch.setitem(peer.LEVEL_TO_ARG, "Rotate", lambda level, _: (seen.append(level),))
    monkeypatch.setitem(peer.NAME_TO_OP, "Rotate", lambda image, *_, **__: image)
    op = peer.AugmentOp("Rotate", 1.0, 9, {"magnitude_std": 1.0, "img_mean": FILL})
    state = random.getstate()
    random.seed(0)
    for _ in range(count):
        op(None)
    random.setstate(state)
    ranks = np.linspace(0.02, 0.98, 25)
    ours, theirs = np.quantile(operations.magnitude, ranks), np.quantile(seen, ranks)
    np.testing.assert_allclose(ours, theirs, atol=0.08)  # 4 sigma where they are rarest
    assert operations.magnitude.max() == 10.0 == max(seen)


# Notation.


def test_the_notation_is_read_as_timm_reads_it():
    settings = read_rand_augment("rand-m7-n3-mstd0.5-p0.7-inc1-mmax12")
    assert settings == RandAugment(3, 7.0, 0.5, 0.7, 12.0, increasing=True)
    theirs = peer.rand_augment_transform("rand-m7-n3-mstd0.5-p0.7-inc1-mmax12")
    op = theirs.ops[4]
    assert (theirs.num_layers, op.magnitude, op.magnitude_std, op.prob) == (3, 7, 0.5, 0.7)
    assert (op.name, op.magnitude_max) == ("PosterizeIncreasing", 12)
    assert read_rand_augment("rand") == RandAugment(2, 10.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auto-m9", r"must be like rand-m9-n2-mstd1\.0 .*, got 'auto' in 'auto-m9'"),
        ("rand-m9-x2", "got 'x2' in 'rand-m9-x2'"),
        ("rand-m9-n0", "must have a positive integer n"),
        ("rand-n1.5", "must have a positive integer n"),
        ("rand-p2", "p up to 1 and a positive mmax, as in rand-m9-n2-mstd1.0"),
        ("rand-mstd101", "must have mstd up to 100 and inc0 or inc1"),
        ("rand-inc2", "must have mstd up to 100 and inc0 or inc1"),
    ],
)
def test_what_is_not_understood_is_named(text, message):
    with pytest.raises(InputError, match=message):
        Augmentation(rand_augment=text)
