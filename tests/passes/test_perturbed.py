"""Outcomes of the same images under several conditions."""

import numpy as np
import pytest
import torch
from internals import Paired


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


def test_changes_are_the_differences_of_each_image():
    paired, logits = measured([5, 7], [None, None])
    targets = torch.arange(12) % 4
    correct = (logits.argmax(2) == targets).double().numpy()
    losses = torch.stack(
        [torch.nn.functional.cross_entropy(x, targets, reduction="none") for x in logits]
    )
    assert paired.accuracy == pytest.approx(correct[0].mean())
    assert paired.nll == pytest.approx(float(losses[0].mean()), rel=1e-6)
    np.testing.assert_array_equal(paired.correct, correct.T)
    np.testing.assert_array_equal(paired.drops, (correct[0] - correct[1:]).T)
    np.testing.assert_allclose(paired.rises, (losses[1:] - losses[0]).T, atol=1e-6)


def test_images_stand_in_the_order_of_the_data_whatever_the_order_of_batches():
    first, _ = measured([5, 7], [0, 5])
    swapped, _ = measured([5, 7], [7, 0])
    assert first.indices.tolist() == swapped.indices.tolist() == list(range(12))
    np.testing.assert_array_equal(first.correct[:5], swapped.correct[7:])
    np.testing.assert_array_equal(first.losses[5:], swapped.losses[:7])
