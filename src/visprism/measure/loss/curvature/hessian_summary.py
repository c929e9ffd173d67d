"""Tally of a Hessian spectrum: how often the loss bends downwards, and how sharp it is.

Source: Park & Kim (2022), How do vision transformers work?, sec. 2 and app. C: NEP and APE.
"""

import numpy as np

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.measure.loss.curvature.hessian_spectrum import HessianSpectrum
from visprism.results.base import Result, column, result_type

_FEWEST = 5  # mini-batches: of fewer, resampling says too little
_FINEST = 0.02  # decades: a bandwidth that the eye can see

Key = tuple[str, str, float]  # phase, data, weight decay


@result_type("hessian-tally")
class HessianTally(Result):
    """NEP and APE of each phase, data and objective; one row for each.

    Intervals are 95 % of bootstrap resamples of the mini-batches, which are independent; the
    eigenvalues of one mini-batch are not. Of fewer than 5 mini-batches there is none (NaN).
    """

    phase: np.ndarray = column("Phase")
    data: np.ndarray = column("Data")
    weight_decay: np.ndarray = column("Weight decay")
    batches: np.ndarray = column("Mini-batches", "", "how many mini-batches")
    nep: np.ndarray = column("Negative share", "NEP", "negative eigenvalue proportion, 0 ... 1")
    nep_low: np.ndarray = column("Nep low")
    nep_high: np.ndarray = column("Nep high")
    ape: np.ndarray = column(
        "Mean of positive", "APE", "average of the positive eigenvalues; NaN if there is none"
    )
    ape_low: np.ndarray = column("Ape low")
    ape_high: np.ndarray = column("Ape high")
    largest: np.ndarray = column(
        "Largest", "", "mean over mini-batches of the largest eigenvalue,"
    )
    smallest: np.ndarray = column("Smallest", "", "and of the smallest")
    nll: np.ndarray = column("NLL", "nats", "mean over mini-batches, in nats")
    converged: np.ndarray = column(
        "Converged share", "", "share of the foremost eigenvalues that have"
    )
    ends_converged: np.ndarray = column(
        "Of largest and smallest",
        "",
        "share of the largest and smallest that have; not waited for",
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        return [self._sentence(row) for row in range(len(self))]

    def _sentence(self, row: int) -> str:
        where = [str(name) for name in (self.phase[row], self.data[row]) if name]
        decay = self.weight_decay[row]
        where.append(f"NLL + L2 (weight decay {decay:g})" if decay else "NLL alone")
        doubt = ""
        if self.converged[row] < 1:
            doubt = f", of which {1 - self.converged[row]:.0%} have not converged"
        nep = ape = ""
        if np.isfinite(self.nep_low[row]):
            nep = f" (95 % interval {self.nep_low[row]:.0%} to {self.nep_high[row]:.0%})"
        if np.isfinite(self.ape_low[row]):
            ape = f" ({self.ape_low[row]:.3g} to {self.ape_high[row]:.3g})"
        positive = "none is positive"
        if np.isfinite(self.ape[row]):
            positive = f"the positive ones are {self.ape[row]:.3g} on average{ape}"
        many = "mini-batch" if self.batches[row] == 1 else "mini-batches"
        return (
            f"{', '.join(where)}: {self.nep[row]:.0%} of the foremost Hessian eigenvalues are "
            f"negative{nep}, {positive}, over {self.batches[row]} {many}{doubt}"
        )


@result_type("hessian-curves")
class HessianCurves(Result):
    """Densities of the magnitudes of eigenvalues, of negative and of positive ones.

    They are per decade: over log10 |value|, the two parts of a curve together have the area 1.
    """

    phase: np.ndarray = column("Phase")
    data: np.ndarray = column("Data")
    weight_decay: np.ndarray = column("Weight decay")
    sign: np.ndarray = column("Sign", "", "-1 or 1")
    value: np.ndarray = column("Value")
    density: np.ndarray = column("Density")


def hessian_tally(
    spectrum: HessianSpectrum, *, resamples: int = 2000, seed: int = 0
) -> HessianTally:
    """NEP, the share of negative eigenvalues, and APE, the mean of the positive ones.

    Raises:
        InputError: if there are no resamples.
    """
    if resamples < 1:
        raise InputError(f"resamples is {resamples}; wants at least 1")
    rows = []
    for key, part in _parts(spectrum):
        foremost = part.select(part.rank > 0)
        numbers = np.unique(foremost.batch)
        values = [foremost.value[foremost.batch == n] for n in numbers]
        counts = np.array(
            [[(v < 0).sum(), len(v), v[v > 0].sum(), (v > 0).sum()] for v in values]
        )
        draws = np.random.default_rng(stream(seed, *key[:2]).initial_seed()).integers(
            len(numbers), size=(resamples, len(numbers))
        )
        nep, ape = _shares(counts.sum(0)[None])
        neps, apes = _shares(counts[draws].sum(1))
        ends = part.select(part.rank == 0)
        n = len(numbers)
        shares = (nep[0], *_interval(neps, n), ape[0], *_interval(apes, n))
        means = [ends.value[ends.which == which].mean() for which in ("LA", "SA")]
        means += [foremost.nll[foremost.rank == 1].mean()]
        means += [foremost.converged.mean(), ends.converged.mean()]
        rows.append((*key, len(numbers), *shares, *means))
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return HessianTally(*columns, provenance=spectrum.provenance)


def hessian_curves(spectrum: HessianSpectrum, *, points: int = 120) -> HessianCurves:
    """Gaussian kernel densities of log10 |eigenvalue|, with Silverman's bandwidth.

    Eigenvalues of 5 and of 5,000 have to be seen in one figure.

    Raises:
        InputError: if there are fewer than two points.

    Source: Silverman (1986), Density estimation for statistics and data analysis, eq. 3.31.
    """
    if points < 2:
        raise InputError(f"points is {points}; wants at least 2")
    rows = []
    for key, part in _parts(spectrum):
        values = part.value[part.rank > 0]
        for sign in (-1, 1):
            own = values[np.sign(values) == sign]
            if len(own):
                at, density = _smoothed(np.log10(np.abs(own)), points)
                value, share = sign * 10**at, density * len(own) / len(values)
                rows += [(*key, sign, v, d) for v, d in zip(value, share, strict=True)]
    types = (str, str, float, int, float, float)
    columns = list(zip(*rows, strict=True)) or [()] * len(types)  # all eigenvalues are 0
    return HessianCurves(
        *(np.array(column, dtype=kind) for column, kind in zip(columns, types, strict=True)),
        provenance=spectrum.provenance,
    )


def _parts(spectrum: HessianSpectrum) -> list[tuple[Key, HessianSpectrum]]:
    columns = (spectrum.phase, spectrum.data, spectrum.weight_decay)
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    found = []
    for key in dict.fromkeys(keys):
        found.append((key, spectrum.select(np.array([k == key for k in keys]))))
    return found


def _shares(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NEP and APE from sums of (negatives, all, positive values, positives)."""
    negatives, every, total, positives = counts.T
    with np.errstate(invalid="ignore"):
        return negatives / every, total / np.where(positives > 0, positives, np.nan)


def _interval(values: np.ndarray, batches: int) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not len(finite) or batches < _FEWEST:
        return np.nan, np.nan
    low, high = np.percentile(finite, [2.5, 97.5])
    return float(low), float(high)


def _smoothed(values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """TokenPositions around the values, and the density there; its area is 1."""
    quartiles = np.subtract(*np.percentile(values, [75, 25])) / 1.34
    spread = min((s for s in (values.std(), quartiles) if s > 0), default=0.0)
    width = max(0.9 * spread * len(values) ** -0.2, _FINEST)
    at = np.linspace(values.min() - 4 * width, values.max() + 4 * width, points)
    kernel = np.exp(-(((at[:, None] - values) / width) ** 2) / 2)
    return at, kernel.mean(1) / (width * np.sqrt(2 * np.pi))
