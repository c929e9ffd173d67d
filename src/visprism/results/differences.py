"""Differences between two models on the same images, mini-batches or direction pairs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite, nan

import numpy as np
from jaxtyping import Bool, Float, Int

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.statistics import (
    FEWEST_DIFFERENT,
    FEWEST_VALUES,
    heavy_tailed_difference,
    mean_interval,
    paired_proportions_interval,
    t_interval,
)
from visprism.results.per_image import ACCURACY, DIRECTION_PAIRS, LOSSES, PerImage
from visprism.table.result import Result, column, result_type, scalar

MIN_DIRECTION_PAIRS = 3  # means over random directions are close to normal

Ends = tuple[float, float]
_MEANS = ("first", "second")


@dataclass(frozen=True)
class Row:
    """The difference of two models in one quantity."""

    quantity: str
    first: float
    second: float
    low: float
    high: float
    number: int  # of images, or of what the interval is taken over
    missing: str = ""  # why there is no interval


@result_type("differences")
class Differences(Result):
    """Differences between two models on the same images; one row for each quantity."""

    quantity: np.ndarray = column("Quantity", "", "name of the quantity")
    first: np.ndarray = column("First", "", "mean of the first model over the common images")
    second: np.ndarray = column("Second", "", "mean of the second model over the common images")
    difference: np.ndarray = column("Difference", "", "second minus first")
    low: np.ndarray = column("Low", "", "lower end of the 95% interval of the difference")
    high: np.ndarray = column("High", "", "upper end of the 95% interval of the difference")
    images: np.ndarray = column("Images", "", "number of common images, or of what `over` says")
    missing: np.ndarray = column("No interval", "", "the reason; empty where there is one")
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")
    over: str = scalar("Over", "", "what the interval is taken over", default="images")

    @property
    def significant(self) -> np.ndarray:
        """Whether the interval of each difference excludes 0."""
        return (self.low > 0) | (self.high < 0)

    @classmethod
    def of(
        cls, rows: Iterable[Row], first: Provenance, second: Provenance, over: str = "images"
    ) -> "Differences":
        """The table of some rows, of results with these provenances."""
        rows, models = list(rows), (first.model, second.model)
        a, b = (np.array([getattr(row, name) for row in rows], float) for name in _MEANS)
        images = max((row.number for row in rows), default=0)
        return cls(
            quantity=np.array([row.quantity for row in rows], dtype=str),
            first=a,
            second=b,
            difference=b - a,
            low=np.array([row.low for row in rows], dtype=float),
            high=np.array([row.high for row in rows], dtype=float),
            images=np.array([row.number for row in rows], dtype=int),
            missing=np.array([row.missing for row in rows], dtype=str),
            first_model=models[0],
            second_model=models[1],
            over=over,
            provenance=replace(
                first,
                model=" and ".join(filter(None, models)),
                images=images if over == "images" else first.images,
            ),
        )


def paired_differences(first: PerImage, second: PerImage) -> Differences:
    """Mean differences between two models on their common images, with 95% intervals.

    Where both hold values of mini-batches, everything is over common mini-batches. With
    d_i = second_i - first_i over n common images, the difference is mean(d). Its interval is
    that of `visprism.core.statistics.mean_interval`, Student's with a correction for skewed
    differences; there is none where fewer than 5 images differ from the median difference. Of
    mini-batches, whose losses have heavy tails, it is that of
    `visprism.core.statistics.heavy_tailed_difference`, from 32 on. Of direction pairs it is
    Student's, from 3 on. Where all values are 0 or 1, as for correct classification, the
    interval is that of Bonett and Price, which does not shrink to a point when the models agree
    on every image. NLL, Brier score and signed calibration error have an interval if each model
    has at least 5 correct and 5 wrong predictions of the common images, see `enough_outcomes`.
    `missing` gives the reason where there is none.

    Quantities that only one of them has are left out.

    Args:
        first: values of the first model.
        second: values of the second model, on the same data; images are matched by index.

    Source: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data.
    """
    quantities = [name for name in first.quantities if name in second.quantities]
    if not quantities:
        raise InputError(
            "first and second must have a quantity in common, got "
            f"{', '.join(first.quantities)} and {', '.join(second.quantities)}"
        )
    if first.over != second.over:
        raise InputError(
            "first and second must both have values of the same units, got values of "
            f"{first.over} and of {second.over}"
        )
    rows = [_difference(name, first, second) for name in quantities]
    return Differences.of(rows, first.provenance, second.provenance, first.over)


def _difference(quantity: str, first: PerImage, second: PerImage) -> Row:
    """Both means, the interval of the difference, and the number of common units."""
    (images_a, values_a), (images_b, values_b) = (
        result.values_of(quantity) for result in (first, second)
    )
    images, at_a, at_b = np.intersect1d(images_a, images_b, return_indices=True)
    if not len(images):
        raise InputError(
            f"first and second must have {first.over} in common, got none for {quantity}"
        )
    a, b = values_a[at_a].astype(np.float64), values_b[at_b].astype(np.float64)
    few = [_few_outcomes(r, images) for r in (first, second)] if quantity in LOSSES else []
    missing = "; ".join(filter(None, few))
    low, high = (nan, nan) if missing else _interval(a, b, first.over)
    if not isfinite(low):
        missing = missing or _reason(b - a, first.over)
    return Row(quantity, float(a.mean()), float(b.mean()), low, high, len(images), missing)


def _interval(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"], over: str) -> Ends:
    """Both ends of the interval of the mean of b - a; NaN where there is none."""
    if over == DIRECTION_PAIRS:
        if len(a) < MIN_DIRECTION_PAIRS:
            return nan, nan
        error = float((b - a).std(ddof=1)) / len(a) ** 0.5
        return t_interval(float((b - a).mean()), error, len(a))
    if over != "images":
        return heavy_tailed_difference(a, b)
    if _binary(a) and _binary(b):
        gained, lost = (int(((a == x) & (b == 1 - x)).sum()) for x in (0, 1))
        return paired_proportions_interval(gained, lost, len(a))
    return mean_interval(b - a)


def _reason(differences: Float[np.ndarray, " n"], over: str) -> str:
    """Why a mean difference over these units has no interval."""
    fewest = MIN_DIRECTION_PAIRS if over == DIRECTION_PAIRS else FEWEST_VALUES
    if not differences.any():
        return f"both models have the same value for all {over}"
    if len(differences) < fewest:
        return f"fewer than {fewest} {over}"
    return f"fewer than {FEWEST_DIFFERENT} {over} differ from the median difference"


def enough_outcomes(correct: Bool[np.ndarray, " n"]) -> bool:
    """Whether means of losses have an interval: from 5 correct and 5 wrong predictions on.

    A few predictions that differ from all others make most of the variance of such a mean, and
    how many there are is a matter of chance.
    """
    return not few_outcomes(int(correct.sum()), len(correct))


def few_outcomes(correct: int, images: int, model: str = "") -> str:
    """Why a mean of losses has no interval; "" from 5 correct and 5 wrong predictions on.

    Example:
        >>> few_outcomes(256, 256, "ResNet-20"), few_outcomes(5, 10)
        ('fewer than 5 predictions of ResNet-20 are wrong', '')
    """
    for word, number in (("correct", correct), ("wrong", images - correct)):
        if number < FEWEST_DIFFERENT:
            of = f" of {model}" if model else ""
            return f"fewer than {FEWEST_DIFFERENT} predictions{of} are {word}"
    return ""


def _few_outcomes(result: PerImage, images: Int[np.ndarray, " n"]) -> str:
    """Why losses of these images have no interval, where predictions are known."""
    if ACCURACY not in result.quantities:
        return ""
    of, correct = result.values_of(ACCURACY)
    chosen = correct[np.isin(of, images)]
    return few_outcomes(int(chosen.sum()), len(chosen), result.provenance.model or "a model")


def _binary(values: Float[np.ndarray, " n"]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())
