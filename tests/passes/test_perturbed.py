"""Outcomes of the same images under several conditions."""

import numpy as np
import torch
from internals import Paired, PixelSpace, normalized

from visprism import Preprocessing


def measured(sizes: list[int], starts: list[int | None]) -> tuple[Paired, torch.Tensor]:
    """Two conditions on random logits, in batches of these sizes; and all logits."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, sum(sizes), 4, generator=generator)
    targets = torch.arange(sum(sizes)) % 4
    paired = Paired(2)
    batches = zip(logits.split(sizes, dim=1), targets.split(sizes), starts, strict=True)
    for batch, target, start in batches:
        paired.reference(batch[0], target, start)
        paired.add(1, batch[2])
        paired.add(0, batch[1])
    return paired.gathered(), logits


def test_images_stand_in_the_order_of_the_data_whatever_the_order_of_batches():
    first, _ = measured([5, 7], [0, 5])
    swapped, _ = measured([5, 7], [7, 0])
    assert first.indices.tolist() == swapped.indices.tolist() == list(range(12))
    np.testing.assert_array_equal(first.correct[:5], swapped.correct[7:])
    np.testing.assert_array_equal(first.losses[5:], swapped.losses[:7])


def test_rounding_to_half_precision_leaves_pixels_between_0_and_1():
    way, pixels = Preprocessing((4, 4)), torch.tensor([0.0, 1.0]).expand(1, 3, 4, 2)
    rounded = normalized((255 * pixels).byte(), way).bfloat16()
    for images in (rounded, rounded.float()):
        undone = PixelSpace(way.mean, way.std).pixels(images)
        assert undone.dtype == images.dtype
        torch.testing.assert_close(undone.float(), pixels, rtol=0, atol=0.5 / 255)
