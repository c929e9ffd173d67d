"""Each corruption is what the paper's code defines."""

from colorsys import hsv_to_rgb, rgb_to_hsv
from io import BytesIO
from itertools import product
from math import ceil

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from visprism import corrupt
from visprism.images.corruptions.blur import copied_from
from visprism.images.corruptions.corrupt import Randomness
from visprism.images.corruptions.filters import motion_taps
from visprism.images.corruptions.severities import severity_parameters
from visprism.images.corruptions.weather import edges, ice, plasma

IMAGENET = 130  # a side whose severities are those of ImageNet-C


def change(given, corrupted):
    """Of each number of the images, in 0 ... 1, with half a step for the cut to eight bits."""
    return (corrupted.double() + 0.5 - given.double()) / 255


def gray(value, number=8, side=IMAGENET):
    return torch.full((number, 3, side, side), value, dtype=torch.uint8)


def within_one_step(corrupted, expected):
    """Numbers of 0 ... 1, cut to eight bits, up to rounding before the cut."""
    low = np.floor(np.clip(255 * expected, 0, 255) - 0.01)
    np.testing.assert_array_compare(np.less_equal, low, corrupted)
    np.testing.assert_array_compare(
        np.less_equal, corrupted, np.clip(255 * expected, 0, 255) + 0.01
    )


@pytest.mark.parametrize(
    ("name", "deviation"), [("gaussian_noise", 0.08), ("speckle_noise", 0.15 * 128 / 255)]
)
def test_normal_noise_has_its_deviation_and_no_mean(name, deviation):
    moved = change(gray(128), corrupt(gray(128), name, 1))
    assert float(moved.std()) == pytest.approx(deviation, rel=0.01)
    assert abs(float(moved.mean())) < 5 * deviation / moved.numel() ** 0.5 + 1e-4
    assert float((moved**4).mean()) == pytest.approx(3 * deviation**4, rel=0.03)
    # White: neighbors and colors know nothing of each other.
    for other in (moved.roll(1, 2), moved.roll(1, 3), moved.roll(1, 1)):
        assert abs(float((moved * other).mean())) < 5 * deviation**2 / moved.numel() ** 0.5


def test_shot_noise_has_the_variance_of_its_photons():
    # Rate 60 * 0.5 = 30 of at most 60; variance 30 / 60^2.
    moved = change(gray(128), corrupt(gray(128), "shot_noise", 1))
    assert float(moved.var()) == pytest.approx(60 * 128 / 255 / 60**2, rel=0.02)
    assert abs(float(moved.mean())) < 0.002


def test_impulses_are_as_many_as_said_half_of_them_white():
    corrupted = corrupt(gray(128), "impulse_noise", 5)
    share = [float((corrupted == v).float().mean()) for v in (0, 255, 128)]
    np.testing.assert_allclose(share, [0.135, 0.135, 0.73], atol=0.003)


@pytest.mark.parametrize(("side", "sigma"), [(32, 0.7), (150, 3.0)])
def test_gaussian_blur_is_scipys(images, side, sigma):
    given = images(2, side)
    exact = ndimage.gaussian_filter(given.double() / 255, (0, 0, sigma, sigma), mode="nearest")
    within_one_step(corrupt(given, "gaussian_blur", 3).numpy(), exact)


def test_defocus_mirrors_the_border_about_its_pixels(images):
    given = images(1, 32)
    # Severity 5 for CIFAR: radius 1.5, nearly hard: nine pixels, each a ninth.
    mirrored = ndimage.correlate(
        given[0].double().numpy() / 255, np.full((1, 3, 3), 1 / 9), mode="mirror"
    )
    difference = corrupt(given, "defocus_blur", 5)[0].numpy() - 255 * mirrored
    assert np.abs(difference).max() <= 1.01


def test_motion_goes_along_a_line_with_half_a_gaussian():
    taps = motion_taps(10, 3, 0)
    assert [(dy, dx) for dy, dx, _ in taps] == [(0, -i) for i in range(21)]
    weights = np.array([w for *_, w in taps])
    np.testing.assert_allclose(weights, np.exp(-np.arange(21) ** 2 / 18) / weights.sum() / (
        np.exp(-np.arange(21) ** 2 / 18).sum()), rtol=1e-6)  # fmt: skip
    down = motion_taps(10, 3, 90)
    assert [(dy, dx) for dy, dx, _ in down] == [(-i, 0) for i in range(21)]


# The arguments of NumPy's arange in the published code, by the side of the images.
PUBLISHED_ZOOMS = {
    32: [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)],
    64: [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)],
    224: [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
}


@pytest.mark.parametrize(("side", "severity"), [(32, 1), (32, 5), (64, 3), (224, 3), (224, 5)])
def test_zoom_blur_is_the_published_mean_of_scipys_zooms(images, side, severity):
    given = images(1, side)
    image = given[0].double().numpy() / 255
    factors = np.arange(1, *PUBLISHED_ZOOMS[side][severity - 1])
    total = image.copy()
    for factor in factors:
        inside = ceil(side / factor)
        top = (side - inside) // 2
        crop = image[:, top : top + inside, top : top + inside]
        enlarged = ndimage.zoom(crop, (1, factor, factor), order=1)
        trim = (enlarged.shape[1] - side) // 2
        total += enlarged[:, trim : trim + side, trim : trim + side]
    exact = total / (len(factors) + 1)
    # SciPy takes its last pixel for one beyond the border.
    corrupted = corrupt(given, "zoom_blur", severity)[0].numpy()[:, :-1, :-1]
    within_one_step(corrupted, exact[:, :-1, :-1])


def one_by_one(moves, reach):
    """Where the colors of each pixel come from, as the published loop has it."""
    _, height, width = moves.shape
    source = np.arange(height * width).reshape(height, width)
    for h, w in product(range(height - reach, reach, -1), range(width - reach, reach, -1)):
        dy, dx = moves[:, h, w]
        source[h, w] = source[h + dy, w + dx]  # NumPy's views make the swap a copy
    return source


@pytest.mark.parametrize(("reach", "size"), [(1, (20, 20)), (4, (17, 26))])
def test_following_pointers_is_going_through_the_pixels_one_by_one(reach, size):
    generator = torch.Generator().manual_seed(reach)
    moves = torch.randint(-reach, reach, (3, 2, *size), generator=generator)
    copies = copied_from(moves, reach)
    for ours, move in zip(copies, moves.numpy(), strict=True):
        np.testing.assert_array_equal(ours.view(size).numpy(), one_by_one(move, reach))


def test_contrast_keeps_the_mean_and_scales_what_differs_from_it(images):
    given = images(2, IMAGENET)
    x = given.double().numpy() / 255
    mean = x.mean((2, 3), keepdims=True)
    within_one_step(corrupt(given, "contrast", 2).numpy(), mean + 0.3 * (x - mean))


def hsv(image, change):
    """The pixels of (3, h, w) with their hue, saturation and value changed, one by one."""
    flat = image.flatten(1).T.double().div(255).tolist()
    changed = [hsv_to_rgb(*change(*rgb_to_hsv(*pixel))) for pixel in flat]
    return np.array(changed).T.reshape(image.shape)


COLORS = torch.tensor(
    [[0, 0, 0], [255, 255, 255], [128, 128, 128], [255, 0, 0], [0, 255, 1], [10, 10, 240],
     [250, 249, 3], [1, 2, 3], [200, 100, 50], [50, 200, 100], [100, 50, 200]],
    dtype=torch.uint8,
)  # fmt: skip


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_brightness_and_saturation_change_hsv(noise, name, severity):
    given = noise(1, 3, IMAGENET, IMAGENET)
    given[0, :, 0, : len(COLORS)] = COLORS.T
    part = given[0, :, :3]
    added = {1: 0.1, 5: 0.5}[severity]
    factor, more = {1: (0.3, 0), 5: (20, 0.2)}[severity]

    def brighter(h, s, v):
        return h, s, min(v + added, 1)

    def stronger(h, s, v):
        return h, min(s * factor + more, 1), v

    exact = hsv(part, {"brightness": brighter, "saturate": stronger}[name])
    within_one_step(corrupt(given, name, severity)[0, :, :3].numpy(), exact)


def rgb(planes):
    """An image as Pillow has it."""
    return Image.fromarray(planes.permute(1, 2, 0).numpy())


QUALITIES = {32: [80, 65, 58, 50, 40], 64: [65, 58, 50, 40, 25], 224: [25, 18, 15, 10, 7]}
SIDES = {
    32: [0.95, 0.9, 0.85, 0.75, 0.65], 64: [0.9, 0.8, 0.7, 0.6, 0.5],
    224: [0.6, 0.5, 0.4, 0.3, 0.25],
}  # fmt: skip


@pytest.mark.parametrize(("side", "severity"), [(32, 1), (64, 3), (224, 5)])
def test_jpeg_and_pixelation_are_pillows(noise, side, severity):
    given = noise(2, 3, side, side)
    small = (int(side * SIDES[side][severity - 1]),) * 2
    jpegs, coarse = (corrupt(given, n, severity) for n in ("jpeg_compression", "pixelate"))
    for before, jpeg, pixels in zip(given, jpegs, coarse, strict=True):
        file = BytesIO()
        rgb(before).save(file, "JPEG", quality=QUALITIES[side][severity - 1])
        assert rgb(jpeg).tobytes() == Image.open(file).tobytes()
        box = rgb(before).resize(small, Image.Resampling.BOX)
        published = box.resize((side, side), Image.Resampling.BOX)
        assert rgb(pixels).tobytes() == published.tobytes()


@pytest.mark.parametrize("side", QUALITIES)
def test_every_severity_is_the_published_one(side):
    image = torch.empty(1, 3, side, side)
    for name, published in {
        "jpeg_compression": QUALITIES[side],
        "pixelate": SIDES[side],
        "zoom_blur": [tuple(np.arange(1, *zoom)) for zoom in PUBLISHED_ZOOMS[side]],
    }.items():
        assert [severity_parameters(name, s, image) for s in range(1, 6)] == published


def test_elastic_is_an_affine_map_where_nothing_else_is_asked_for():
    # Severity 1 for CIFAR moves three points and has no displacement.
    given = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    given += torch.arange(0, 128, 4, dtype=torch.uint8)  # a ramp to the right
    corrupted = corrupt(given, "elastic_transform", 1)[0, 0].double()[8:24, 8:24]
    row, column = (torch.arange(16.0).double() - 7.5,) * 2
    by_column = (corrupted * column).sum(1) / (column**2).sum()
    by_row = (corrupted * row[:, None]).sum(0) / (row**2).sum()
    assert float(by_column.std()) < 0.1  # steps are the same everywhere: an affine map,
    assert float(by_row.std()) < 0.1
    assert 2.5 < float(by_column.mean()) < 5.5  # near the identity, whose step is 4


def randomness(number):
    return Randomness(0, "test", range(number), torch.device("cpu"))


def test_plasma_has_the_published_mean_deviation_and_continues_at_its_far_side():
    maps = plasma(256, 2.0, randomness(120))
    assert torch.all(maps.amin((1, 2)) == 0)
    assert torch.all(maps.amax((1, 2)) == 1)
    # Of 600 maps of the published code, within 224x224: mean 0.493, deviation 0.150.
    part = maps[:, :224, :224]
    assert float(part.mean()) == pytest.approx(0.493, abs=0.03)
    assert float(part.std((1, 2)).mean()) == pytest.approx(0.150, abs=0.008)
    inner, across = maps.diff(dim=2).square().mean(), maps[..., 0] - maps[..., -1]
    assert float(across.square().mean()) < 2 * float(inner)


def test_fog_keeps_the_brightest_pixel_within_the_range(images):
    given = images(3, IMAGENET)
    corrupted = corrupt(given, "fog", 3)
    assert torch.all(corrupted.amax((1, 2, 3)) <= given.amax((1, 2, 3)))
    # x (m / (m + c)) is the least, where the clouds are 0.
    least = given.float() * (255 / (255 + 2.5 * 255))
    assert torch.all(corrupted.float() >= least * (given.amax() / 255) - 20)


def test_ice_has_the_spectrum_of_the_photographs():
    fields = ice((224, 224), randomness(60)).mean(1)
    fields = fields - fields.mean((1, 2), keepdim=True)
    assert 0.06 < float(fields.std((1, 2)).mean()) < 0.13
    power = torch.fft.rfft2(fields).abs().square().mean(0)
    frequency = torch.hypot(torch.fft.fftfreq(224)[:, None], torch.fft.rfftfreq(224)[None])
    bands = [(0.02, 0.04), (0.1, 0.2), (0.3, 0.4)]
    level = [power[(frequency > a) & (frequency < b)].log().mean() for a, b in bands]
    middle = [np.log((a * b) ** 0.5) for a, b in bands]
    slope = np.polyfit(middle, level, 1)[0]
    assert -1.9 < slope < -1.4


def test_snow_whitens_and_lies_upside_down_too():
    corrupted = corrupt(gray(0, 1), "snow", 3)[0, 0].int()
    white = int(255 * (1 - 0.7) * 0.5)  # black becomes 0.3 * 0.5
    assert corrupted.min() == white
    layer = corrupted - white
    unclipped = (layer + layer.flip(0, 1)) < 300
    assert ((layer - layer.flip(0, 1)).abs()[unclipped] <= 1).all()
    assert layer.max() > 100


def test_edges_of_a_disk_are_its_rim():
    row, column = torch.meshgrid(torch.arange(60), torch.arange(60), indexing="ij")
    far = torch.hypot(row - 30.0, column - 30.0)
    rim = torch.from_numpy(edges(torch.where(far < 15, 200.0, 0.0).numpy()))
    assert ((far[rim] - 15).abs() < 1.5).all()
    angle = torch.atan2(row - 30.0, column - 30.0)[rim]
    assert len((angle * 16 / np.pi).floor().unique()) >= 32  # all the way round


def test_a_weak_edge_counts_where_a_strong_one_joins_it():
    layer = np.zeros((20, 40), np.float32)
    layer[10:, :20] = 30.0  # size 120: weak
    layer[10:, 20:] = 60.0  # size 240: strong
    assert edges(layer)[:, 2:18].any()
    assert not edges(layer[:, :20])[:, 2:18].any()
