"""Differences of Hessian eigenvalues between two models on the same mini-batches."""

from collections.abc import Iterator
from math import isfinite, nan

import numpy as np

from visprism.core.statistics import heavy_tailed_difference
from visprism.results.differences import Differences, Row
from visprism.results.hessian import HessianSpectrum
from visprism.results.hessian_statistics import (
    MIN_BATCHES,
    MIN_BATCHES_APE,
    average_positive,
    average_positive_difference,
    geometric_mean,
    geometric_mean_difference,
    negative_proportion,
    negative_proportion_difference,
)
from visprism.results.hessian_summary import APE, GEOMETRIC, LARGEST, NEP


def hessian_differences(first: HessianSpectrum, second: HessianSpectrum) -> Differences:
    """Differences of NEP, APE, geometric mean and largest eigenvalue, second minus first.

    One row for each quantity, phase, data set and objective of both models, with a 95%
    interval over common mini-batches where there are enough of them: 10 for NEP and the
    geometric mean, 32 for APE and the largest eigenvalue. Means of positive eigenvalues need a
    positive one in both models, and the largest eigenvalue must have converged in each
    mini-batch of both; else the row is left out.

    Args:
        first: spectrum of the first model.
        second: spectrum of the second model; mini-batches are matched by their number.
    """
    others, names = dict(second.parts()), first.summary()
    rows = [
        row
        for number, (key, part) in enumerate(first.parts())
        if key in others
        for row in _rows(part, others[key], names.name_of(number))
    ]
    return Differences.of(rows, first.provenance, second.provenance, "mini-batches")


def _rows(first: HessianSpectrum, second: HessianSpectrum, name: str) -> Iterator[Row]:
    """The differences of one phase, data set and objective."""
    common = np.intersect1d(first.batch, second.batch)
    n = len(common)
    if not n:
        return
    pair = [_leading(spectrum, common) for spectrum in (first, second)]
    for quantity, mean, difference, fewest in (
        (NEP, negative_proportion, negative_proportion_difference, MIN_BATCHES),
        (APE, average_positive, average_positive_difference, MIN_BATCHES_APE),
        (GEOMETRIC, geometric_mean, geometric_mean_difference, MIN_BATCHES),
    ):
        a, b = (mean(values)[0] for values in pair)
        if isfinite(a) and isfinite(b):
            low, high = difference(*pair) if n >= fewest else (nan, nan)
            missing = _missing(low, n, fewest)
            yield Row(f"{quantity}, {name}", a, b, low, high, n, missing)
    largest = [_largest(spectrum, common) for spectrum in (first, second)]
    if all(len(values) == n for values in largest):
        low, high = heavy_tailed_difference(*largest)
        a, b = (float(values.mean()) for values in largest)
        missing = _missing(low, n, MIN_BATCHES_APE)
        yield Row(f"{LARGEST}, {name}", a, b, low, high, n, missing)


def _missing(low: float, batches: int, fewest: int) -> str:
    """Why a difference has no interval; empty where it has one."""
    if isfinite(low):
        return ""
    if batches < fewest:
        return f"fewer than {fewest} mini-batches"
    return f"fewer than {fewest} mini-batches with different positive eigenvalues"


def _leading(spectrum: HessianSpectrum, batches: np.ndarray) -> list[np.ndarray]:
    """The leading eigenvalues of each of these mini-batches."""
    leading = spectrum.select(spectrum.rank > 0)
    return [leading.value[leading.batch == number] for number in batches]


def _largest(spectrum: HessianSpectrum, batches: np.ndarray) -> np.ndarray:
    """The largest eigenvalue of these mini-batches; none unless all have converged."""
    ends = (spectrum.rank == 0) & (spectrum.which == "LA") & np.isin(spectrum.batch, batches)
    if not spectrum.converged[ends].all():
        return np.zeros(0)
    return spectrum.value[ends][np.argsort(spectrum.batch[ends])]
