"""Laws of accuracy on shifted images."""

import numpy as np
import pytest
import torch
from results_by_hand.base import complete
from torch import nn

from visprism import DistributionShift, InputError, Predictions, Preprocessing, Provenance
from visprism.analyses.predictions.distribution_shift import restricted
from visprism.core.statistics import difference_interval, wilson
from visprism.estimates.corruption_error import ALEXNET
from visprism.images.stored import stored_conditions
from visprism.kit.inputs import subject_of
from visprism.results import ShiftedAccuracy


def predictions(logits, targets):
    return Predictions(torch.tensor(logits, dtype=torch.float32), torch.tensor(targets))


REFERENCE = Predictions(
    torch.tensor([[9.0, 0, 0, 0], [1, 0, 9, 2], [0, 9, 5, 1], [0, 0, 0, 9.0]]),
    torch.tensor([0, 1, 2, 3]),
)


def test_predictions_are_restricted_to_the_classes_of_the_set():
    # The largest logit is that of class 3, which the set does not have.
    shifted = predictions([[1, 0, 2, 9], [5, 0, 4, 9], [0, 9, 7, 8]], [2, 2, 2])
    number, accuracy, reference, drop = restricted("r", shifted, REFERENCE, (0, 2))
    # Of the data, images 0 and 2 are of these classes; both are correct among them.
    assert (number, accuracy, reference) == (2, pytest.approx(2 / 3), 1)
    assert [len(n.by_unit) for n in (accuracy, reference)] == [3, 2]
    assert drop == pytest.approx(1 / 3)
    assert drop.low < drop < drop.high
    low, high = wilson(np.array([2]), np.array([3]))
    assert (accuracy.low, accuracy.high) == (low[0], high[0])
    assert restricted("all", shifted, REFERENCE, ())[:3] == (4, 0, 0.5)


def test_the_interval_of_a_drop_is_that_of_newcombe():
    """56 of 70 minus 48 of 80: 0.2 [0.0524, 0.3339] (Newcombe 1998, table II, method 10)."""
    ends = [wilson(np.array([k]), np.array([n])) for k, n in ((48, 80), (56, 70))]
    first, second = (
        (p, float(e[0][0]), float(e[1][0])) for p, e in zip((0.6, 0.8), ends, strict=True)
    )
    low, high = difference_interval(first, second, (0.0, 0.0))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)


@pytest.mark.parametrize(("size", "mce"), [(224, 0.5), (64, np.nan)])
def test_mce_is_the_mean_error_relative_to_the_published_one_of_alexnet(size, mce):
    names = np.repeat(list(ALEXNET), 5)
    result = complete(
        ShiftedAccuracy,
        shift=names,
        corruption=names,
        severity=np.tile(np.arange(1, 6), len(ALEXNET)),
        classes=np.full(len(names), 1000),
        accuracy=1 - 0.5 * np.repeat(list(ALEXNET.values()), 5),
        provenance=Provenance(image_shape=(3, size, size)),
    )
    assert result.mce == pytest.approx(mce, nan_ok=True)


def test_a_stored_set_is_each_of_its_corruptions_and_severities(tmp_path):
    for part in ("fog/1", "fog/5", "snow/3"):
        (tmp_path / part).mkdir(parents=True)
    spec = f"imagenet_c:{tmp_path}"
    assert stored_conditions(spec) == [
        f"{spec}?corruption={c}&severity={s}" for c, s in (("fog", 1), ("fog", 5), ("snow", 3))
    ]
    assert stored_conditions(f"{spec}?corruption=fog") == [f"{spec}?corruption=fog"]
    assert stored_conditions("imagenet_r:DIR") == ["imagenet_r:DIR"]


def test_the_analysis_reads_stored_sets(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("fog", "snow"):
        pixels = generator.integers(0, 256, (50, 32, 32, 3), np.uint8)
        np.save(tmp_path / f"{name}.npy", pixels)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10, dtype=np.uint8), 5))
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 10)).eval()
    way = Preprocessing((32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
    data = [(torch.randn(20, 3, 32, 32), torch.arange(20) % 10)]
    analysis = DistributionShift(sets=(f"cifar10_c:{tmp_path}",))
    result = analysis(model, data, preprocessing=way)
    assert len(result) == 10
    assert analysis.cost(subject_of(model, data)).per_image == 11
    conditions = set(zip(result.corruption.tolist(), result.severity.tolist(), strict=True))
    assert conditions == {(c, s) for c in ("fog", "snow") for s in range(1, 6)}
    assert (result.images == 10).all()


def test_sets_of_other_classes_are_refused():
    reference = Predictions(3 * torch.eye(4), torch.zeros(4).long())
    for target, classes, sentence in (
        (1, (0, 2), "targets of r must be among its classes"),
        (2, (2, 3), "must have images of the classes of r"),
    ):
        shifted = predictions([[1, 0, 2, 9]], [target])
        with pytest.raises(InputError, match=sentence):
            restricted("r", shifted, reference, classes)
