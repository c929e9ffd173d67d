"""Outcomes of the same images under several conditions."""

import torch
from internals import PixelSpace, normalized

from visprism import Preprocessing


def test_rounding_to_half_precision_leaves_pixels_between_0_and_1():
    way, pixels = Preprocessing((4, 4)), torch.tensor([0.0, 1.0]).expand(1, 3, 4, 2)
    rounded = normalized((255 * pixels).byte(), way).bfloat16()
    for images in (rounded, rounded.float()):
        undone = PixelSpace(way.mean, way.std).pixels(images)
        assert undone.dtype == images.dtype
        torch.testing.assert_close(undone.float(), pixels, rtol=0, atol=0.5 / 255)
