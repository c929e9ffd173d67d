"""`check_probe` (src/visprism/testing/probes.py) finds each way to break the laws of probes."""

import numpy as np
import pytest
import torch

from visprism import Probe, Result, assert_results_equal, check_probe, column, plot, result_type


@result_type("test-means")
class Means(Result):
    """Mean of each block's feature maps."""

    block: np.ndarray = column("Block")
    mean: np.ndarray = column("Mean")


@plot.register
def _(result: Means, ax=None):
    ax.plot(result.mean)
    return ax


class MeanProbe(Probe):
    """Keeps all laws."""

    def extract(self, x):
        return x.mean((1, 2, 3))

    def update(self, batch):
        self.add({b: np.array([len(e), e.sum().item()]) for b, e in batch.items()})

    def result(self):
        sums = self.gathered()
        return Means(
            block=np.array([block.name for block in sums]),
            mean=np.array([total / images for images, total in sums.values()]),
        )


class MeanOfBatchMeans(MeanProbe):
    def update(self, batch):
        self.add({b: np.array([1, e.mean().item()]) for b, e in batch.items()})


class RecordsImages(MeanProbe):
    """Keeps all laws, those of values of single images too."""

    def update(self, batch):
        super().update(batch)
        self.record("mean", self.values(next(iter(batch.values()))).numpy())

    def values(self, extract):
        return extract


class RecordsBatchMeans(RecordsImages):
    def values(self, extract):
        return extract.mean().expand(len(extract))


class RecordsSortedValues(RecordsImages):
    def values(self, extract):
        return extract.sort().values


class RecordsOneValueByBatch(RecordsImages):
    def values(self, extract):
        return extract[:1]


class FirstImageOnly(MeanProbe):
    def update(self, batch):
        new = {b: e[:1] for b, e in batch.items() if b not in self.sums}
        super().update(new)


class KeepsStateElsewhere(MeanProbe):
    def __init__(self):
        super().__init__()
        self.images = 0

    def update(self, batch):
        super().update(batch)
        self.images += len(next(iter(batch.values())))

    def result(self):
        result = super().result()
        images = np.array([count for count, _ in self.sums.values()])
        return Means(block=result.block, mean=result.mean * images / max(1, self.images))


class ChangesTheMap(MeanProbe):
    def extract(self, x):
        return x.abs_().mean((1, 2, 3))


class ReadsMemoryInOrder(MeanProbe):
    def extract(self, x):
        rows = torch.as_strided(x, x.shape, x.contiguous().stride(), x.storage_offset())
        return rows[:, 0].mean((1, 2))


class NeedsNoData(MeanProbe):
    def result(self):
        return (
            super().result()
            if self.sums
            else Means(block=np.zeros(0, dtype=str), mean=np.zeros(0))
        )


@result_type("test-undrawable")
class Undrawable(Means):
    """Has a figure that returns nothing."""


@plot.register
def _(result: Undrawable, ax=None):
    ax.plot(result.mean)


class HasNoFigure(MeanProbe):
    def result(self):
        return Undrawable(**vars(super().result()))


@pytest.mark.parametrize("probe", [MeanProbe, RecordsImages])
def test_a_probe_that_keeps_the_laws_passes(tmp_path, probe):
    check_probe(probe, tmp_path)


@pytest.mark.parametrize(
    ("probe", "law"),
    [
        (MeanOfBatchMeans, "other batches change the result"),
        (FirstImageOnly, "the order of images changes the result|other batches change"),
        (KeepsStateElsewhere, "spreading over processes changes the result"),
        (RecordsBatchMeans, "other batches change the result"),
        (RecordsSortedValues, "the order of images changes the result|other batches change"),
        (RecordsOneValueByBatch, "record must get one value for each image"),
        (ChangesTheMap, "extract changes the feature map"),
        (ReadsMemoryInOrder, "the order of memory changes the result"),
        (NeedsNoData, "a probe without data must raise InputError"),
        (HasNoFigure, "plot does not return the axes"),
    ],
)
def test_a_broken_law_is_named(tmp_path, probe, law):
    with pytest.raises(AssertionError, match=law):
        check_probe(probe, tmp_path)


def test_equal_results_may_hold_nan_and_differ_by_rounding():
    a = Means(block=np.array(["x", "y"]), mean=np.array([1.0, np.nan]))
    assert_results_equal(a, Means(block=a.block, mean=a.mean * (1 + 1e-12)))
    with pytest.raises(AssertionError, match="mean"):
        assert_results_equal(a, Means(block=a.block, mean=a.mean * (1 + 1e-6)))
    with pytest.raises(AssertionError, match="block"):
        assert_results_equal(a, Means(block=np.array(["x", "z"]), mean=a.mean))
    with pytest.raises(AssertionError, match="a Means and a Undrawable"):
        assert_results_equal(a, Undrawable(block=a.block, mean=a.mean))
