"""Differences of APE between two models on the same mini-batches."""

from dataclasses import replace

import numpy as np

from visprism.results.hessian import HessianSpectrum
from visprism.results.hessian_statistics import average_positive, average_positive_difference
from visprism.results.hessian_summary import APE
from visprism.results.per_image import Differences


def ape_differences(first: HessianSpectrum, second: HessianSpectrum) -> Differences:
    """Differences of APE, second minus first, with 95 % intervals over common mini-batches.

    One row for each phase, data set and objective of both models. A row is left out where it
    has no interval, see `visprism.results.hessian_statistics.average_positive_difference`.

    Args:
        first: spectrum of the first model.
        second: spectrum of the second model; mini-batches are matched by their number.
    """
    others, names = dict(second.parts()), first.summary()
    rows = []
    for row, (key, part) in enumerate(first.parts()):
        if key not in others:
            continue
        common = np.intersect1d(part.batch, others[key].batch)
        pair = [_leading(spectrum, common) for spectrum in (part, others[key])]
        low, high = average_positive_difference(*pair)
        if np.isfinite(low):
            means = [average_positive(values)[0] for values in pair]
            rows.append((f"{APE}, {names.name_of(row)}", *means, low, high, len(common)))
    quantity, a, b, low, high, number = zip(*rows, strict=True) if rows else [()] * 6
    models = first.provenance.model, second.provenance.model
    return Differences(
        quantity=np.array(quantity, dtype=str),
        first=np.array(a, dtype=float),
        second=np.array(b, dtype=float),
        difference=np.array(b, dtype=float) - np.array(a, dtype=float),
        low=np.array(low, dtype=float),
        high=np.array(high, dtype=float),
        images=np.array(number, dtype=int),
        first_model=models[0],
        second_model=models[1],
        over="mini-batches",
        provenance=replace(first.provenance, model=" and ".join(filter(None, models))),
    )


def _leading(spectrum: HessianSpectrum, batches: np.ndarray) -> list[np.ndarray]:
    """The leading eigenvalues of each of these mini-batches."""
    leading = spectrum.select(spectrum.rank > 0)
    return [leading.value[leading.batch == number] for number in batches]
