"""`check_statistic` (src/visprism/testing.py) finds each way to break its laws."""

import numpy as np
import pytest
import torch

from visprism import (
    FeatureStatistic,
    Result,
    Texts,
    assert_results_equal,
    check_statistic,
    column,
    plot,
    result_type,
)


@result_type("test-means")
class Means(Result):
    """Mean of each block's feature maps."""

    block: Texts = column("Block")
    mean: np.ndarray = column("Mean")


@plot.register
def _(result: Means, ax=None):
    ax.plot(result.mean)
    return ax


class MeanMaps(FeatureStatistic):
    """Keeps all laws."""

    def extract(self, x):
        return {"mean": x.mean((1, 2, 3))}

    def results(self, seen):
        means = seen["mean"].mean(0)
        return (Means(block=np.array([b.name for b in seen.blocks]), mean=means),)


class SumOfMaps(MeanMaps):
    """Keeps all laws, with sums in place of values by image."""

    summed = ("mean",)

    def sums(self, extracts, batch, seed):
        means = {b: values["mean"] for b, values in extracts.items()}
        return {b: np.array([len(x), x.sum().item()]) for b, x in means.items()}

    def results(self, seen):
        means = np.array([total / images for images, total in seen.sums.values()])
        return (Means(block=np.array([b.name for b in seen.sums]), mean=means),)


class MeanOfBatchMeans(SumOfMaps):
    def sums(self, extracts, batch, seed):
        return {b: np.array([1, v["mean"].mean().item()]) for b, v in extracts.items()}


class BatchMeansByImage(MeanMaps):
    def extract(self, x):
        return {"mean": x.mean().expand(len(x)) ** 2}


class ChangesTheMap(MeanMaps):
    def extract(self, x):
        return {"mean": x.abs_().mean((1, 2, 3))}


class ReadsMemoryInOrder(MeanMaps):
    def extract(self, x):
        rows = torch.as_strided(x, x.shape, x.contiguous().stride(), x.storage_offset())
        return {"mean": rows[:, 0].mean((1, 2))}


@result_type("test-undrawable")
class Undrawable(Means):
    """Has a figure that returns nothing."""


@plot.register
def _(result: Undrawable, ax=None):
    ax.plot(result.mean)


class HasNoFigure(MeanMaps):
    def results(self, seen):
        (result,) = super().results(seen)
        return (Undrawable(**vars(result)),)


@pytest.mark.parametrize("statistic", [MeanMaps, SumOfMaps])
def test_a_statistic_that_keeps_the_laws_passes(tmp_path, statistic):
    check_statistic(statistic(), tmp_path)


@pytest.mark.parametrize(
    ("statistic", "law"),
    [
        (MeanOfBatchMeans, "other batches change the result"),
        (BatchMeansByImage, "other batches change the result"),
        (ChangesTheMap, "extract changes the feature map"),
        (ReadsMemoryInOrder, "the order of memory changes the result"),
        (HasNoFigure, "plot does not return the axes"),
    ],
)
def test_a_broken_law_is_named(tmp_path, statistic, law):
    with pytest.raises(AssertionError, match=law):
        check_statistic(statistic(), tmp_path)


def test_equal_results_may_hold_nan_and_differ_by_rounding():
    a = Means(block=np.array(["x", "y"]), mean=np.array([1.0, np.nan]))
    assert_results_equal(a, Means(block=a.block, mean=a.mean * (1 + 1e-12)))
    with pytest.raises(AssertionError, match="mean"):
        assert_results_equal(a, Means(block=a.block, mean=a.mean * (1 + 1e-6)))
    with pytest.raises(AssertionError, match="block"):
        assert_results_equal(a, Means(block=np.array(["x", "z"]), mean=a.mean))
    with pytest.raises(AssertionError, match="a Means and a Undrawable"):
        assert_results_equal(a, Undrawable(block=a.block, mean=a.mean))
