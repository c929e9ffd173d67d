"""Laws of perturbation sequences."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from visprism.images.corruptions.filters import rotated, scaled, tilted
from visprism.images.corruptions.sequences import PERTURBATIONS, sequence

FRAMES = {"motion_blur": 21, "translate": 16}


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_an_image_has_one_sequence_in_every_batch(images, name):
    given = images(3, 32)
    together = sequence(given, name, seed=2)
    assert together.shape == (3, FRAMES.get(name, 31), 3, 32, 32)  # the published number
    assert (together[:, 0] != together[:, -1]).any()
    alone = sequence(given[2:], name, seed=2, numbers=[2])
    assert (together[2:].int() - alone.int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("name", "frame"),
    [("gaussian_noise", 0), ("shot_noise", 0), ("zoom_blur", 0), ("brightness", 15),
     ("translate", 7), ("rotate", 15), ("scale", 15)],
)  # fmt: skip
def test_one_frame_is_the_image_itself(images, name, frame):
    given = images(2, 32)
    assert (sequence(given, name)[:, frame].int() - given.int()).abs().max() <= 1


def test_noise_is_drawn_anew_for_each_frame(images):
    frames = sequence(images(1, 32), "gaussian_noise")[0].float()
    steps = frames[1:] - frames[:1]
    inside = (frames[0] > 30) & (frames[0] < 225)
    assert float(steps[:, inside].std()) / 255 == pytest.approx(0.02, rel=0.05)
    assert (steps[0] != steps[1]).any()


def test_translations_move_by_one_pixel_and_bring_black(images):
    frames = sequence(images(1, 32), "translate")[0]
    torch.testing.assert_close(frames[1:, ..., 7:], frames[:-1, ..., 6:-1])
    assert (frames[-1, ..., :8] == 0).all()


def test_a_quarter_turn_is_exact_and_clockwise(noise):
    image = noise(1, 3, 20, 20).double()
    turned = rotated(image, 90)
    torch.testing.assert_close(turned, image.rot90(-1, (2, 3)), atol=1e-6, rtol=0)


def test_a_scaled_image_is_scipys(noise):
    image = noise(1, 1, 20, 20).double().expand(-1, 3, -1, -1)
    middle = 9.5
    exact = ndimage.affine_transform(
        image[0, 0].numpy(), np.diag([1 / 1.25] * 2), [middle * (1 - 1 / 1.25)] * 2, order=1
    )
    np.testing.assert_allclose(scaled(image, 1.25)[0, 0], exact, atol=1e-6)


def test_a_tilted_plane_keeps_straight_lines_and_its_middle():
    image = torch.zeros(1, 3, 64, 64)
    image[..., 32, :] = 1.0  # the row through the middle, at height / 2
    frames = tilted(image, 10)[0, 0]
    rows = (frames * torch.arange(64)[:, None]).sum(0)[8:56] / frames.sum(0)[8:56]
    line = np.polyfit(np.arange(8, 56), rows, 1)
    assert np.abs(np.polyval(line, np.arange(8, 56)) - rows.numpy()).max() < 0.1
    assert np.polyval(line, 32) == pytest.approx(
        32 - np.sin(np.deg2rad(10)), abs=0.05
    )  # see above
