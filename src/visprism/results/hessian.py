"""Results on the Hessians of mini-batches: eigenvalues and their densities.

Source: Park & Kim (2022), How do vision transformers work?, sec. 2 and app. C: NEP and APE.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from visprism.core.errors import InputError
from visprism.results.hessian_statistics import (
    average_positive,
    geometric_mean,
    kernel_density,
    negative_proportion,
)
from visprism.results.hessian_summary import HessianSummary
from visprism.table.result import Result, column, result_type, scalar

Key = tuple[str, str, float]  # phase, data, weight decay

FEWEST_OF_A_DENSITY = 10  # eigenvalues
_ROUNDING = 1e-5  # of products in single precision, relative to the largest eigenvalue


@result_type("hessian-spectrum")
class HessianSpectrum(Result):
    """Eigenvalues of the Hessians of mini-batches; one row for each, in order of rank.

    Two more rows of rank 0 hold the largest (LA) and the smallest (SA) eigenvalue as the same
    products give them. Iteration does not wait for them to converge: see `converged`.
    """

    phase: np.ndarray = column("Phase", "", "of training, as the caller names it")
    data: np.ndarray = column("Data", "", "as the caller names it, such as clean or augmented")
    weight_decay: np.ndarray = column("Weight decay", "", "of the L2 term; 0 for the NLL alone")
    batch: np.ndarray = column("Mini-batch", "", "its number in the data")
    nll: np.ndarray = column("NLL", "nats", "mean loss of the mini-batch")
    which: np.ndarray = column("Which", "", "LM (magnitude), LA (largest), SA (smallest)")
    rank: np.ndarray = column("Rank", "", "1 for the leading eigenvalue; 0 for the two ends")
    value: np.ndarray = column("Hessian eigenvalue", "", "of the mini-batch")
    residual: np.ndarray = column(
        "Residual", "", "‖Hv - λv‖; an eigenvalue is within this distance"
    )
    converged: np.ndarray = column(
        "Converged", "", "residual at most tolerance times |value|, and no other ranks before"
    )
    k: int = scalar("k", "", "number of leading eigenvalues per mini-batch")
    tol: float = scalar("Tolerance", "", "relative residual of convergence")
    parameters: int = scalar("Parameters", "", "size of each matrix, number of parameters")
    products: int = scalar("Products", "", "Hessian-vector products of all mini-batches")
    requested: int = scalar(
        "Requested mini-batches", "", "fewer were measured if time ran out; 0: all", default=0
    )
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    @property
    def batches(self) -> int:
        """Number of mini-batches that every phase, data set and objective has."""
        return min((len(np.unique(part.batch)) for _, part in self.parts()), default=0)

    def first(self, batches: int) -> "HessianSpectrum":
        """The spectrum of the first mini-batches alone.

        Mini-batches are measured in the order of the data, so that the first n of two models
        are the same images.
        """
        if not 1 <= batches <= self.batches:
            raise InputError(f"batches must be between 1 and {self.batches}, got {batches}")
        numbers = np.unique(self.batch)[:batches]
        return self.select(np.isin(self.batch, numbers))

    @staticmethod
    def concatenate(spectra: Iterable["HessianSpectrum"]) -> "HessianSpectrum":
        """Spectra of several phases of one model as one, in their order."""
        spectra = list(spectra)
        phases = [phase for s in spectra for phase in dict.fromkeys(s.phase.tolist())]
        if len(set(phases)) < len(phases):
            raise InputError(
                f"phases must have different names, got {', '.join(map(repr, phases))}"
            )
        settings = {(s.k, s.parameters) for s in spectra}
        if len(settings) != 1:
            raise InputError(
                "spectra must have one k and one number of parameters, got "
                f"{sorted(settings) or 'no spectrum'}"
            )
        names = [n for n, v in vars(spectra[0]).items() if isinstance(v, np.ndarray)]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(s, name) for s in spectra]) for name in names
        }
        return replace(spectra[0], **columns, products=sum(s.products for s in spectra))

    def summary(self) -> "HessianSummary":
        """NEP, the share of negative eigenvalues, and APE, the mean of the positive ones."""
        rows = [(*key, *_summary_of(part)) for key, part in self.parts()]
        return HessianSummary(
            **_named_columns(HessianSummary, rows),
            k=self.k,
            tol=self.tol,
            requested=self.requested,
            learning_rate=self.learning_rate,
            provenance=self.provenance,
        )

    def curves(self, *, points: int = 120) -> "HessianCurves":
        """Gaussian kernel densities of log10 |eigenvalue|, with Silverman's bandwidth.

        Fewer than 10 eigenvalues of a sign have no density: their values stand beside NaN.

        Source: Silverman (1986), Density estimation for statistics and data analysis, eq. 3.31.
        """
        if points < 2:
            raise InputError(f"points must be at least 2, got {points}")
        rows = []
        for key, part in self.parts():
            values = part.value[part.rank > 0]
            for sign in (-1, 1):
                of_sign = values[np.sign(values) == sign]
                if 0 < len(of_sign) < FEWEST_OF_A_DENSITY:
                    rows += [(*key, sign, value, float("nan")) for value in np.sort(of_sign)]
                elif len(of_sign):
                    x, density = kernel_density(np.log10(np.abs(of_sign)), points)
                    scaled = density * len(of_sign) / len(values)
                    rows += [
                        (*key, sign, sign * 10**a, d) for a, d in zip(x, scaled, strict=True)
                    ]
        types = (str, str, float, int, float, float)
        columns = list(zip(*rows, strict=True)) or [()] * len(types)  # all eigenvalues are 0
        arrays = [np.array(c, dtype=kind) for c, kind in zip(columns, types, strict=True)]
        names = ("phase", "data", "weight_decay", "sign", "value", "density")
        return HessianCurves(
            **dict(zip(names, arrays, strict=True)), provenance=self.provenance
        )

    def parts(self) -> list[tuple[Key, "HessianSpectrum"]]:
        """The spectrum of each phase, data set and weight decay, with these three."""
        columns = (self.phase, self.data, self.weight_decay)
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        return [
            (key, self.select(np.array([k == key for k in keys])))
            for key in dict.fromkeys(keys)
        ]


@result_type("hessian-curves")
class HessianCurves(Result):
    """Densities of the magnitudes of eigenvalues, of negative and of positive ones.

    They are per decade: over log10 |value|, the two parts of a curve together have area 1.
    """

    phase: np.ndarray = column("Phase", "", "of training, as the caller names it")
    data: np.ndarray = column("Data", "", "as the caller names it, such as clean or augmented")
    weight_decay: np.ndarray = column("Weight decay", "", "of the L2 term; 0 for the NLL alone")
    sign: np.ndarray = column("Sign", "", "-1 for negative eigenvalues, 1 for positive ones")
    value: np.ndarray = column(
        "Hessian eigenvalue", "", "where the density is evaluated; itself without a density"
    )
    density: np.ndarray = column(
        "Density", "1/decade", "of the leading eigenvalues; NaN for fewer than 10 of a sign"
    )


def _summary_of(part: HessianSpectrum) -> tuple[int | float, ...]:
    """The columns of `HessianSummary` after the key, for one phase, data set and objective."""
    leading = part.select(part.rank > 0)
    numbers = np.unique(leading.batch)
    values = [leading.value[leading.batch == n] for n in numbers]
    positive = np.concatenate([v[v > 0] for v in values])
    nan = float("nan")
    return (
        len(numbers),
        *negative_proportion(values),
        *average_positive(values),
        float(np.median(positive)) if len(positive) else nan,
        *geometric_mean(values),
        *_end(part, "LA"),
        *_end(part, "SA"),
        _negative(part),
        float(leading.nll[leading.rank == 1].mean()),
        float(leading.converged.mean()),
    )


def _end(part: HessianSpectrum, which: str) -> tuple[float, float]:
    """Mean of one end of the spectrum, and the fraction that converged."""
    rows = (part.rank == 0) & (part.which == which)
    return float(part.value[rows].mean()), float(part.converged[rows].mean())


def _negative(part: HessianSpectrum) -> int:
    """Number of mini-batches with a smallest Ritz value below 0 by more than rounding."""
    numbers = part.batch[(part.rank == 0) & (part.which == "SA")]
    smallest = part.value[(part.rank == 0) & (part.which == "SA")]
    scales = np.array([np.abs(part.value[part.batch == number]).max() for number in numbers])
    return int((smallest < -_ROUNDING * scales).sum())


def _named_columns(kind: type[Result], rows: list[tuple]) -> dict[str, np.ndarray]:
    names = [name for name, info in kind.infos().items()]
    columns = list(zip(*rows, strict=True))
    return {n: np.array(c) for n, c in zip(names[: len(columns)], columns, strict=True)}
