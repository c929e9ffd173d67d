"""Hessian eigenvalues of mini-batches: the spectrum, its densities, and NEP and APE.

Source: Park & Kim (2022), How do vision transformers work?, sec. 2 and app. C: NEP and APE.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from visprism.estimates.eigenvalues import (
    average_positive,
    geometric_mean,
    heavy_tailed,
    negative_proportion,
)
from visprism.estimates.estimated import stacked
from visprism.estimates.findings import Finding
from visprism.loss.eigenvalues import CONVERGED, RESIDUAL, objective_label, stability_findings
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

FEWEST_OF_A_DENSITY = 10  # eigenvalues
_ROUNDING = 1e-5  # of products in single precision, relative to the largest eigenvalue
_MIN_BANDWIDTH = 0.02  # decades; narrower peaks cannot be seen


@result_type("hessian-spectrum", "Eigenvalues of each mini-batch", figures={})
class HessianSpectrum(Result):
    """Eigenvalues of the Hessians of mini-batches; one row for each, in order of rank.

    Each row is a value of one mini-batch; an eigenvalue of the Hessian is within its
    residual. Rank 0 marks estimates of the largest and smallest eigenvalue, for which
    convergence is not required.

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
    weight_decay: float = scalar(
        "Weight decay", "", "of the L2 term; 0 without it", default=0.0
    )
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    @property
    def batches(self) -> int:
        """Number of mini-batches."""
        return len(np.unique(self.batch))

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
        values, leading = self.by_batch(), self.select(self.rank > 0)
        largest, smallest = self.end("LA"), self.end("SA")
        positive = np.concatenate([v[v > 0] for v in values])
        scales = [np.abs(self.value[self.batch == number]).max() for number in smallest.batch]
        negative = smallest.value < -_ROUNDING * np.array(scales)
        return HessianSummary(
            batches=np.array([len(values)]),
            nep=stacked([negative_proportion(values)]),
            ape=stacked([average_positive(values)]),
            ape_log_mean=stacked([geometric_mean(values)]),
            ape_median=np.array([np.median(positive) if len(positive) else np.nan]),
            largest=stacked([heavy_tailed(largest.value[np.argsort(largest.batch)])]),
            largest_converged=np.array([largest.converged.mean()]),
            smallest=np.array([smallest.value.mean()]),
            smallest_converged=np.array([smallest.converged.mean()]),
            negative_batches=np.array([negative.sum()]),
            nll=np.array([leading.nll[leading.rank == 1].mean()]),
            converged=np.array([leading.converged.mean()]),
            k=self.k,
            tol=self.tol,
            weight_decay=self.weight_decay,
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
        values = np.concatenate(self.by_batch())
        for sign in (-1, 1):
            of_sign = values[np.sign(values) == sign]
            if 0 < len(of_sign) < FEWEST_OF_A_DENSITY:
                rows += [(sign, value, float("nan")) for value in np.sort(of_sign)]
            elif len(of_sign):
                x, density = _kernel_density(np.log10(np.abs(of_sign)), points)
                x, density = sign * 10**x, density * len(of_sign) / len(values)
                rows += [(sign, *point) for point in zip(x, density, strict=True)]
        signs, at, density = zip(*rows, strict=True) if rows else ((), (), ())  # all are 0
        return HessianCurves(
            sign=np.array(signs, dtype=int),
            value=np.array(at, dtype=float),
            density=np.array(density, dtype=float),
            weight_decay=self.weight_decay,
            provenance=self.provenance,
        )


@result_type("hessian-curves", "Hessian eigenvalues", table=False)
class HessianCurves(Result):
    """Densities of the magnitudes of eigenvalues, of negative and of positive ones.

    Density of the leading Hessian eigenvalues of the mini-batches, by magnitude. Up to 9 of
    them are drawn as marks. Large positive eigenvalues mean a sharp loss. Negative ones, on
    the left, are directions of negative curvature: the weights are not at a local minimum.

    They are per decade: over log10 |value|, the two parts of a curve together have area 1.
    """

    sign: np.ndarray = column("Sign", "", "-1 for negative eigenvalues, 1 for positive ones")
    value: np.ndarray = column(
        "Hessian eigenvalue", "", "where the density is evaluated; itself without a density"
    )
    density: np.ndarray = column(
        "Density", "1/decade", "of the leading eigenvalues; NaN for fewer than 10 of a sign"
    )
    weight_decay: float = scalar(
        "Weight decay", "", "of the L2 term; 0 without it", default=0.0
    )


_OF_BATCHES: dict[str, Any] = {"over": "mini-batches", "comparison": "combined"}
_FLATNESS = _OF_BATCHES | {"asks": "How flat is the loss?", "better": "lower"}


@result_type("hessian-summary", "Sharpness and convexity", figures={})
class HessianSummary(Result):
    """NEP and APE of an objective; one row.

    APE is the mean of the positive leading eigenvalues: with a larger one the loss is
    sharper. NEP is the fraction of negative ones: with a larger one the loss is less
    convex. Intervals are over mini-batches.

    Intervals are over at least 10 mini-batches, and for APE and the largest eigenvalue over at
    least 32.
    """

    row_names = ("objectives",)
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
        asks="Does the loss have negative curvature?",
        over="",
        comparison="none",
    )
    nep: np.ndarray = estimate(
        "Negative leading Hessian eigenvalues (NEP)",
        "%",
        "fraction of the leading eigenvalues below 0",
        **_OF_BATCHES,
        asks="Does the loss have negative curvature?",
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
    weight_decay: float = scalar(
        "Weight decay", "", "of the L2 term; 0 without it", default=0.0
    )
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    @property
    def objectives(self) -> list[str]:
        """The objective of the row."""
        return [objective_label(self.provenance.split, self.weight_decay)]

    def answered(self, name: str) -> np.ndarray:
        """The row, if it has a value, and where all converged for the largest eigenvalue."""
        if name == "largest":
            return np.flatnonzero(self.largest_converged == 1)
        return np.flatnonzero(np.isfinite(getattr(self, name)))

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The reading of the smallest eigenvalue: whether there is negative curvature."""
        further = {"measure": "", "variant": self.objectives[row]}
        if name != "smallest":
            return further
        bound = "" if self.smallest_converged[0] == 1 else " at most"
        symbol = f"smallest eigenvalue{bound}"
        return further | {"reading": self._negative_curvature(), "symbol": symbol}

    def sentences(self) -> Iterator[str | Finding]:
        """NEP and APE with their intervals, convergence, and the limit of stability."""
        name, reading = self.objectives[0], self._negative_curvature()
        yield from super().sentences()
        if reading.startswith("yes") and float(self.nep[0]) == 0:
            yield Finding(
                f"negative curvature of the {name}: {reading}, although none of the leading "
                "eigenvalues is negative",
                code="VP111",
            )
        if self.converged[0] < 1:
            yield Finding(
                f"{1 - self.converged[0]:.0%} of the leading Hessian eigenvalues of the "
                f"{name} did not converge to a relative residual of {self.tol:g}; each is "
                "within its residual of an eigenvalue",
                code="VP106",
            )
        yield from stability_findings(float(self.largest[0]), self.learning_rate)

    def _negative_curvature(self) -> str:
        """Whether there is any, by the smallest eigenvalue; leading ones may all be positive.

        A Ritz value is at least the smallest eigenvalue, so that a negative one proves negative
        curvature whether it converged or not. A positive one excludes it only if it converged.
        """
        negative, batches = int(self.negative_batches[0]), int(self.batches[0])
        if negative > 0:
            return (
                "yes" if negative == batches else f"yes in {negative} of {batches} mini-batches"
            )
        if self.nep[0] > 0:
            return "yes"
        return "no" if self.smallest_converged[0] == 1 else "can't tell"


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
