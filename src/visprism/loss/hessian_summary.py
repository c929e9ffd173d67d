"""Hessian eigenvalues of mini-batches: the spectrum, its densities, and NEP and APE.

Source: Park & Kim (2022), How do vision transformers work?, sec. 2 and app. C: NEP and APE.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from visprism.core.errors import InputError
from visprism.estimates import questions
from visprism.estimates.eigenvalues import (
    MIN_BATCHES,
    average_positive,
    geometric_mean,
    heavy_tailed,
    negative_proportion,
)
from visprism.estimates.estimated import Estimated, stacked
from visprism.estimates.findings import Finding
from visprism.estimates.text import missing_text, text_of
from visprism.loss.eigenvalues import CONVERGED, RESIDUAL, objective_label, stability_findings
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar
from visprism.table.shapes import result_shape

Key = tuple[str, str, float]  # phase, data, weight decay

FEWEST_OF_A_DENSITY = 10  # eigenvalues
_ROUNDING = 1e-5  # of products in single precision, relative to the largest eigenvalue
_MIN_BANDWIDTH = 0.02  # decades; narrower peaks cannot be seen


@result_shape
class OfObjectives(Result):
    """Rows that belong to a phase of training, a data set and an objective."""

    phase: Texts = column("Phase", "", "of training, as the caller names it")
    data: Texts = column("Data", "", "as the caller names it, such as clean or augmented")
    weight_decay: np.ndarray = column("Weight decay", "", "of the L2 term; 0 without it")

    @property
    def keys(self) -> list[Key]:
        """Phase, data and weight decay of each row."""
        columns = (self.phase, self.data, self.weight_decay)
        return list(zip(*(column.tolist() for column in columns), strict=True))


@result_type("hessian-spectrum")
class HessianSpectrum(OfObjectives):
    """Eigenvalues of the Hessians of mini-batches; one row for each, in order of rank.

    Two more rows of rank 0 hold the largest (LA) and the smallest (SA) eigenvalue as the same
    products give them. Iteration does not wait for them to converge: see `converged`.
    """

    batch: np.ndarray = column("Mini-batch", "", "its number in the data")
    nll: np.ndarray = column("NLL", "nats", "mean loss of the mini-batch")
    which: Texts = column("Which", "", "LM (magnitude), LA (largest), SA (smallest)")
    rank: np.ndarray = column("Rank", "", "1 for the leading eigenvalue; 0 for the two ends")
    value: np.ndarray = column("Hessian eigenvalue", "", "of the mini-batch")
    residual: np.ndarray = column("Residual", "", RESIDUAL)
    converged: np.ndarray = column("Converged", "", CONVERGED)
    k: int = scalar("k", "", "number of leading eigenvalues per mini-batch")
    tol: float = scalar("Tolerance", "", "relative residual of convergence")
    parameters: int = scalar("Parameters", "", "size of each matrix, number of parameters")
    products: int = scalar("Products", "", "Hessian-vector products of all mini-batches")
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    @property
    def batches(self) -> int:
        """Number of mini-batches that every phase, data set and objective has."""
        return min((len(np.unique(part.batch)) for _, part in self.parts()), default=0)

    @staticmethod
    def concatenate(spectra: Iterable["HessianSpectrum"]) -> "HessianSpectrum":
        """Spectra of several phases of one model as one, in their order."""
        spectra = list(spectra)
        phases = [phase for s in spectra for phase in dict.fromkeys(s.phase.tolist())]
        if len(set(phases)) < len(phases):
            named = ", ".join(map(repr, phases))
            raise InputError(f"phases must have different names, got {named}")
        names = [n for n, v in vars(spectra[0]).items() if isinstance(v, np.ndarray)]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(s, name) for s in spectra]) for name in names
        }
        return replace(spectra[0], **columns, products=sum(s.products for s in spectra))

    def parts(self) -> list[tuple[Key, "HessianSpectrum"]]:
        """The spectrum of each phase, data set and weight decay, with these three."""
        keys = self.keys
        return [
            (key, self.select(np.array([k == key for k in keys])))
            for key in dict.fromkeys(keys)
        ]

    def end(self, which: str) -> "HessianSpectrum":
        """One end of the spectrum, "LA" or "SA", of each mini-batch."""
        return self.select((self.rank == 0) & (self.which == which))

    def by_batch(self) -> list[Float[np.ndarray, " k"]]:
        """The leading eigenvalues of each mini-batch; 0 for those within rounding of it."""
        values = []
        for number in np.unique(self.batch):
            part = self.select(self.batch == number)
            rounding = _ROUNDING * np.abs(part.value).max()
            leading = part.value[part.rank > 0]
            values.append(np.where(np.abs(leading) > rounding, leading, 0.0))
        return values

    def summary(self) -> "HessianSummary":
        """NEP, the share of negative eigenvalues, and APE, the mean of the positive ones."""
        parts = self.parts()
        phase, data, weight_decay = (
            np.array(c) for c in zip(*(k for k, _ in parts), strict=True)
        )
        columns = [_summary_of(part) for _, part in parts]
        return HessianSummary(
            phase=phase,
            data=data,
            weight_decay=weight_decay,
            **{name: _column([c[name] for c in columns]) for name in columns[0]},
            k=self.k,
            tol=self.tol,
            learning_rate=self.learning_rate,
            provenance=self.provenance,
        )

    def curves(self, *, points: int = 120) -> "HessianCurves":
        """Gaussian kernel densities of log10 |eigenvalue|, with Silverman's bandwidth.

        Fewer than 10 eigenvalues of a sign have no density: it is NaN next to their
        values.

        Source: Silverman (1986), Density estimation for statistics and data analysis, eq. 3.31.
        """
        rows: list[tuple] = []
        for key, part in self.parts():
            values = np.concatenate(part.by_batch())
            for sign in (-1, 1):
                of_sign = values[np.sign(values) == sign]
                if 0 < len(of_sign) < FEWEST_OF_A_DENSITY:
                    rows += [(*key, sign, value, float("nan")) for value in np.sort(of_sign)]
                elif len(of_sign):
                    x, density = _kernel_density(np.log10(np.abs(of_sign)), points)
                    x, density = sign * 10**x, density * len(of_sign) / len(values)
                    rows += [(*key, sign, *point) for point in zip(x, density, strict=True)]
        types = {
            "phase": str, "data": str, "weight_decay": float,
            "sign": int, "value": float, "density": float,
        }  # fmt: skip
        columns = list(zip(*rows, strict=True)) or [()] * len(types)  # all eigenvalues are 0
        arrays = {
            name: np.array(values, dtype=kind)
            for (name, kind), values in zip(types.items(), columns, strict=True)
        }
        return HessianCurves(**arrays, provenance=self.provenance)


@result_type("hessian-curves")
class HessianCurves(OfObjectives):
    """Densities of the magnitudes of eigenvalues, of negative and of positive ones.

    They are per decade: over log10 |value|, the two parts of a curve together have area 1.
    """

    sign: np.ndarray = column("Sign", "", "-1 for negative eigenvalues, 1 for positive ones")
    value: np.ndarray = column(
        "Hessian eigenvalue", "", "where the density is evaluated; itself without a density"
    )
    density: np.ndarray = column(
        "Density", "1/decade", "of the leading eigenvalues; NaN for fewer than 10 of a sign"
    )


_OF_BATCHES: dict[str, Any] = {"over": "mini-batches", "comparison": "combined"}
_FLATNESS = _OF_BATCHES | {"question": questions.FLATNESS, "claim": "C1"}


@result_type("hessian-summary")
class HessianSummary(OfObjectives):
    """NEP and APE of each phase, data set and objective; one row for each.

    Intervals are over at least 10 mini-batches, and for APE and the largest eigenvalue over at
    least 32.
    """

    row_names = ("names",)
    drawn_in = "hessian-curves"

    batches: np.ndarray = column("Mini-batches", "", "how many were measured")
    ape_log_mean: np.ndarray = estimate(
        "Geometric mean of positive leading Hessian eigenvalues",
        "",
        "less sensitive to single mini-batches",
        **_FLATNESS,
    )
    ape: np.ndarray = estimate(
        "Mean of positive leading Hessian eigenvalues (APE)", "", **_FLATNESS
    )
    largest: np.ndarray = estimate(
        "Largest Hessian eigenvalue, mean over mini-batches", "", **_FLATNESS
    )
    smallest: np.ndarray = estimate(
        "Smallest Hessian eigenvalue, mean over mini-batches",
        "",
        "of Ritz values, which are upper bounds; equal where converged",
        question=questions.CURVATURE,
        over="",
        comparison="none",
    )
    nep: np.ndarray = estimate(
        "Negative leading Hessian eigenvalues (NEP)",
        "%",
        "fraction of the leading eigenvalues below 0",
        **_OF_BATCHES,
        question=questions.CURVATURE,
        claim="C2",
        symbol="NEP",
    )
    ape_median: np.ndarray = column(
        "Median positive eigenvalue", "", "median of the leading eigenvalues above 0"
    )
    largest_converged: np.ndarray = column(
        "Converged largest", "", "fraction of the largest eigenvalues that converged"
    )
    smallest_converged: np.ndarray = column(
        "Converged smallest", "", "fraction of the smallest eigenvalues that converged"
    )
    negative_batches: np.ndarray = column(
        "Negative curvature", "", "number of mini-batches whose smallest eigenvalue is negative"
    )
    nll: np.ndarray = column("NLL", "nats", "mean loss over mini-batches")
    converged: np.ndarray = column(
        "Converged", "", "fraction of the leading eigenvalues that converged"
    )
    k: int = scalar("k", "", "number of leading eigenvalues per mini-batch", default=0)
    tol: float = scalar("Tolerance", "", "relative residual of convergence", default=0.01)
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    @property
    def names(self) -> list[str]:
        """Objective, images, phase and data of each row."""
        return [
            ", ".join([objective_label(self.provenance.split, decay), *filter(None, others)])
            for *others, decay in self.keys
        ]

    def answered(self, name: str) -> np.ndarray:
        """The rows with a value; of the largest eigenvalue those in which all converged."""
        if name == "largest":
            return np.flatnonzero(self.largest_converged == 1)
        return np.flatnonzero(np.isfinite(getattr(self, name)))

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The reading of the smallest eigenvalue: whether there is negative curvature."""
        further = {"measure": "", "variant": self.names[row]}
        if name != "smallest":
            return further
        bound = "" if self.smallest_converged[row] == 1 else " at most"
        symbol = f"smallest eigenvalue{bound}"
        return further | {"reading": self._negative_curvature(row), "symbol": symbol}

    def sentences(self) -> Iterator[str | Finding]:
        """NEP and APE with their intervals, convergence, and the limit of stability."""
        for row in range(len(self)):
            yield from self._findings_of(row)

    def _negative_curvature(self, row: int) -> str:
        """Whether there is any, by the smallest eigenvalue; leading ones may all be positive.

        A Ritz value is at least the smallest eigenvalue, so that a negative one proves negative
        curvature whether it converged or not. A positive one excludes it only if it converged.
        """
        negative, batches = int(self.negative_batches[row]), int(self.batches[row])
        if negative > 0:
            return (
                "yes" if negative == batches else f"yes in {negative} of {batches} mini-batches"
            )
        if self.nep[row] > 0:
            return "yes"
        return "no" if self.smallest_converged[row] == 1 else "can't tell"

    def _findings_of(self, row: int) -> list[Finding]:
        name, batches, size = (
            self.names[row],
            int(self.batches[row]),
            self.provenance.batch_size,
        )
        nep, ape, geometric = self.nep[row], self.ape[row], self.ape_log_mean[row]
        positive = "none is positive"
        if np.isfinite(ape):
            positive = (
                f"the positive ones average {text_of(ape)} (APE"
                f"{'' if batches < MIN_BATCHES else missing_text(ape)}; geometric mean "
                f"{text_of(geometric)}, median {self.ape_median[row]:.3g})"
            )
        few = f", too few for an interval (at least {MIN_BATCHES})" * (batches < MIN_BATCHES)
        findings = [
            Finding(
                f"leading Hessian eigenvalues of the {name}: {text_of(nep, '.0%')} are "
                f"negative (NEP), {positive}; {batches} mini-batch{'es' * (batches != 1)}"
                f"{f' of {size} images' if size else ''}{few}"
            )
        ]
        if np.isfinite(self.smallest[row]):
            reading = self._negative_curvature(row)
            hidden = reading.startswith("yes") and float(nep) == 0
            although = ", although none of the leading ones is negative" * hidden
            bound = "" if self.smallest_converged[row] == 1 else "at most "
            findings.append(
                Finding(
                    f"negative curvature of the {name}: {reading} (smallest eigenvalue {bound}"
                    f"{self.smallest[row]:.3g}, mean over mini-batches{although})",
                    code="VP111" if hidden else "",
                )
            )
        if self.converged[row] < 1:
            findings.append(
                Finding(
                    f"{1 - self.converged[row]:.0%} of the leading Hessian eigenvalues of the "
                    f"{name} did not converge to a relative residual of {self.tol:g}; each is "
                    "within its residual of an eigenvalue",
                    code="VP106",
                )
            )
        return findings + stability_findings(float(self.largest[row]), self.learning_rate)


def _summary_of(part: HessianSpectrum) -> dict[str, Any]:
    """The columns of `HessianSummary` for one phase, data set and objective."""
    values, leading = part.by_batch(), part.select(part.rank > 0)
    largest, smallest = part.end("LA"), part.end("SA")
    positive = np.concatenate([v[v > 0] for v in values])
    scales = [np.abs(part.value[part.batch == number]).max() for number in smallest.batch]
    return {
        "batches": len(values),
        "nep": negative_proportion(values),
        "ape": average_positive(values),
        "ape_log_mean": geometric_mean(values),
        "ape_median": float(np.median(positive)) if len(positive) else float("nan"),
        "largest": heavy_tailed(largest.value[np.argsort(largest.batch)]),
        "largest_converged": float(largest.converged.mean()),
        "smallest": float(smallest.value.mean()),
        "smallest_converged": float(smallest.converged.mean()),
        "negative_batches": int((smallest.value < -_ROUNDING * np.array(scales)).sum()),
        "nll": float(leading.nll[leading.rank == 1].mean()),
        "converged": float(leading.converged.mean()),
    }


def _column(values: Sequence[Any]) -> np.ndarray | Estimated:
    return stacked(values) if hasattr(values[0], "by_unit") else np.array(values)


def _kernel_density(
    values: Float[np.ndarray, " n"], points: int
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Positions around the values, and the density there; its area is 1."""
    quartiles = np.subtract(*np.percentile(values, [75, 25])) / 1.34
    spread = min((s for s in (values.std(), quartiles) if s > 0), default=0.0)
    width = max(0.9 * spread * len(values) ** -0.2, _MIN_BANDWIDTH)
    x = np.linspace(values.min() - 4 * width, values.max() + 4 * width, points)
    kernel = np.exp(-(((x[:, None] - values) / width) ** 2) / 2)
    return x, kernel.mean(1) / (width * np.sqrt(2 * np.pi))
