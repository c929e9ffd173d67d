"""Laws of random resized crops (src/visprism/data/augmentation/crops.py)."""

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import transforms as peer

from visprism import Augmentation, Preprocessing
from visprism.core.run import stream
from visprism.data.augmentation.crops import cut_out, draw_windows, windows
from visprism.data.augmentation.draws import draw
from visprism.data.augmentation.pipeline import changed
from visprism.data.augmentation.views import Views


class Given:
    """What timm takes for Python's `random`: the numbers that ours were given."""

    def __init__(self, u):
        self.uniforms = iter(u.view(4, 10)[:2].T.flatten().tolist())  # by attempt
        self.rows, self.attempt = u.view(4, 10), -1
        self.row = 2

    def uniform(self, low, high):
        self.attempt += 1  # two numbers each
        return low + (high - low) * next(self.uniforms)

    def randint(self, low, high):
        number = float(self.rows[self.row, self.attempt // 2])
        self.row += 1
        return low + int(number * (high - low + 1))


# Against another implementation.


@pytest.mark.parametrize("size", [(32, 32), (9, 20), (30, 12)])  # the last two often hold none
def test_a_window_is_that_of_timm_at_the_same_draw(size, monkeypatch):
    u = torch.rand(40, 80, generator=stream(3, "cut"), dtype=torch.float64)
    u[:10, :20] = 1 - u[:10, :20] / 50  # nearly all of the area
    sampled = windows(u, 0.08, size)
    picture = Image.new("RGB", size[::-1])
    for i, window in enumerate(sampled.T.tolist()):
        monkeypatch.setattr(peer, "random", Given(u[:, i]))
        crop = peer.RandomResizedCropAndInterpolation(size)
        wanted = crop.get_params(picture, (0.08, 1.0), (3 / 4, 4 / 3))
        assert window == list(wanted)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(32, 32), (23, 30)])
def test_every_byte_is_that_of_pillow(size, interpolation):
    generator = stream(0, "cut")
    images = torch.randint(0, 256, (60, 3, *size), dtype=torch.uint8, generator=generator)
    images[::3] = 255 * (images[::3] // 128)  # kernels overshoot beside such edges
    window = draw_windows(0.05, 60, size, generator)
    got = cut_out(images, window, interpolation)
    way = Image.Resampling[interpolation.upper()]
    for i, (top, left, high, wide) in enumerate(window.T.tolist()):
        picture = Image.fromarray(images[i].permute(1, 2, 0).contiguous().numpy())
        cut = picture.crop((left, top, left + wide, top + high)).resize(size[::-1], way)
        assert np.array_equal(np.asarray(cut), got[i].permute(1, 2, 0).numpy())


def test_random_interpolation_is_bilinear_or_bicubic_with_equal_probability():
    """As timm's "random", which the paper's code uses; every byte is that of Pillow."""
    generator = stream(0, "cut")
    images = torch.randint(0, 256, (200, 3, 16, 16), dtype=torch.uint8, generator=generator)
    how = Augmentation(area=0.1, crop_interpolation="random")
    random = draw(how, 200, (16, 16), stream(1, "cut"))
    got = changed(images, random, how, Preprocessing((16, 16), interpolation="lanczos"))
    cubic = 0
    for i, (top, left, high, wide) in enumerate(random.window.T.tolist()):
        picture = Image.fromarray(images[i].permute(1, 2, 0).contiguous().numpy())
        crop = picture.crop((left, top, left + wide, top + high))
        bilinear, bicubic = (
            np.asarray(crop.resize((16, 16), way))
            for way in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
        )
        pixels = got[i].permute(1, 2, 0).numpy()
        assert np.array_equal(pixels, bicubic if random.crop_cubic[i] else bilinear)
        cubic += bool(random.crop_cubic[i])
    assert 100 - 4 * 50**0.5 < cubic < 100 + 4 * 50**0.5


def test_random_interpolation_leaves_the_other_random_choices_as_they_are():
    plain = draw(Augmentation(area=0.1, flip=0.5), 50, (16, 16), stream(1, "cut"))
    random = draw(
        Augmentation(area=0.1, flip=0.5, crop_interpolation="random"),
        50,
        (16, 16),
        stream(1, "cut"),
    )
    for name in ("window", "flip", "corner", "box"):
        assert torch.equal(getattr(plain, name), getattr(random, name))
    assert not plain.crop_cubic.any()


# What it is.


def test_parts_of_the_area_are_uniform_and_lie_everywhere():
    top, left, high, wide = draw_windows(0.2, 4000, (64, 64), stream(1, "cut"))
    assert int((top + high).max()) == int((left + wide).max()) == 64
    assert int(top.min()) == int(left.min()) == 0
    shape = wide / high
    assert float(shape.min()) >= 3 / 4 - 0.04
    assert float(shape.max()) <= 4 / 3 + 0.04
    small = (high * wide)[high * wide < 0.6 * 64**2] / 64**2  # the image holds all of these
    assert np.quantile(small, [0, 0.5, 1]) == pytest.approx([0.2, 0.4, 0.6], abs=0.02)


def test_the_whole_image_is_left_as_it_is():
    images = torch.randint(0, 256, (3, 3, 9, 7), dtype=torch.uint8, generator=stream(0, "x"))
    window = draw_windows(1.0, 3, (9, 7), stream(0, "y"))
    assert window.T.tolist() == [[0, 0, 9, 7]] * 3
    assert torch.equal(cut_out(images, window, "bicubic"), images)


# Views of files: out of a frame of black.


def test_a_view_is_shifted_in_a_frame_of_black_to_every_place():
    pixels = np.full((10, 12, 3), 200, np.uint8)
    pixels[4, 6] = 7  # tells where the image has gone
    way = Preprocessing((10, 12), crop=1.0)
    view = Views(Augmentation(padding=2), way, 0)
    seen = set()
    for use in range(300):
        shifted = view(Image.fromarray(pixels), use)[0]
        ((row, column),) = (shifted == 7).nonzero().tolist()
        down, across = row - 4, column - 6
        inside = torch.full((10, 12), 200, dtype=torch.uint8)
        inside[row, column] = 7
        rows, columns = torch.arange(10)[:, None], torch.arange(12)
        black = (rows < down) | (rows >= 10 + down)
        black = black | (columns < across) | (columns >= 12 + across)
        assert torch.equal(shifted, inside.masked_fill(black, 0))
        seen.add((down, across))
    assert seen == {(y, x) for y in range(-2, 3) for x in range(-2, 3)}
