"""Results on the Hessians of mini-batches: eigenvalues, their summary, and densities.

Source: Park & Kim (2022), How do vision transformers work?, sec. 2 and app. C: NEP and APE.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from visprism.core.errors import InputError
from visprism.results.answers import Answer
from visprism.results.base import Result, column, result_type, scalar
from visprism.results.findings import Finding
from visprism.results.hessian_statistics import (
    MIN_BATCHES,
    average_positive,
    geometric_mean,
    kernel_density,
    linearized_ratio,
    negative_proportion,
)
from visprism.results.loss import (
    SHARPNESS_QUESTION,
    objective_label,
    stability_findings,
)
from visprism.results.per_image import PerImage

# Quantities, as answers and values of mini-batches name them.
_APE = "mean of positive leading Hessian eigenvalues (APE)"
_GEOMETRIC = "geometric mean of positive leading Hessian eigenvalues"
_NEP = "negative leading Hessian eigenvalues (NEP)"
_LARGEST = "largest Hessian eigenvalue, mean over mini-batches"

Key = tuple[str, str, float]  # phase, data, weight decay


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
        return min((len(np.unique(part.batch)) for _, part in self._parts()), default=0)

    def first(self, batches: int) -> "HessianSpectrum":
        """The spectrum of the first mini-batches alone.

        Mini-batches are measured in the order of the data, so that the first n of two models
        are the same images.

        Raises:
            InputError: if there are fewer.
        """
        if not 1 <= batches <= self.batches:
            raise InputError(f"batches must be between 1 and {self.batches}, got {batches}")
        numbers = np.unique(self.batch)[:batches]
        return self.select(np.isin(self.batch, numbers))

    @staticmethod
    def concatenate(spectra: Iterable["HessianSpectrum"]) -> "HessianSpectrum":
        """Spectra of several phases of one model as one, in their order.

        Raises:
            InputError: if there is none, two have one phase, or they differ in k or in the
                number of parameters.
        """
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
        rows = [(*key, *_summary_of(part)) for key, part in self._parts()]
        return HessianSummary(
            **_named_columns(HessianSummary, rows),
            k=self.k,
            tol=self.tol,
            requested=self.requested,
            learning_rate=self.learning_rate,
            provenance=self.provenance,
        )

    def per_mini_batch(self) -> PerImage:
        """NEP, both means of positive eigenvalues and the largest one, of each mini-batch.

        Their means over mini-batches are the numbers of `summary`. The means of positive
        eigenvalues are ratios of sums over mini-batches, so that their values are linearized,
        see `linearized_ratio`. Left out is what has no interval: everything for fewer than 10
        mini-batches, APE of heavy-tailed ones, and the largest eigenvalue unless it converged
        in each.
        """
        summary = self.summary()
        names: list[str] = []
        values: list[np.ndarray] = []
        numbers: list[np.ndarray] = []
        for row, (_, part) in enumerate(self._parts()):
            for quantity, of_batches in _by_mini_batch(part, summary, row).items():
                names += [f"{quantity}, {summary.name_of(row)}"] * len(of_batches)
                values.append(of_batches)
                numbers.append(np.unique(part.batch))
        return PerImage(
            quantity=np.array(names, dtype=str),
            image=np.concatenate([*numbers, np.zeros(0, dtype=int)]),
            value=np.concatenate([*values, np.zeros(0)]),
            over="mini-batches",
            provenance=self.provenance,
        )

    def curves(self, *, points: int = 120) -> "HessianCurves":
        """Gaussian kernel densities of log10 |eigenvalue|, with Silverman's bandwidth.

        Raises:
            InputError: if there are fewer than two points.

        Source: Silverman (1986), Density estimation for statistics and data analysis, eq. 3.31.
        """
        if points < 2:
            raise InputError(f"points must be at least 2, got {points}")
        rows = []
        for key, part in self._parts():
            values = part.value[part.rank > 0]
            for sign in (-1, 1):
                of_sign = values[np.sign(values) == sign]
                if len(of_sign):
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

    def _parts(self) -> list[tuple[Key, "HessianSpectrum"]]:
        columns = (self.phase, self.data, self.weight_decay)
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        return [
            (key, self.select(np.array([k == key for k in keys])))
            for key in dict.fromkeys(keys)
        ]


def _older_summary(values: dict) -> dict:
    """Files of version 0.1 have neither a median nor a mean of logarithms."""
    nan = np.full(len(values["nep"]), np.nan)
    for end in ("largest", "smallest"):
        values[f"{end}_converged"] = values["ends_converged"]
    names = ("ape_median", "ape_log_mean", "ape_log_mean_low", "ape_log_mean_high")
    return values | dict.fromkeys(names, nan)


@result_type("hessian-summary", formerly="HessianTally", upgrades={0: _older_summary})
class HessianSummary(Result):
    """NEP and APE of each phase, data set and objective; one row for each.

    Intervals are 95 % intervals over mini-batches, which are independent; the eigenvalues of
    one mini-batch are not. They are NaN for fewer than 10 mini-batches.
    """

    phase: np.ndarray = column("Phase", "", "of training, as the caller names it")
    data: np.ndarray = column("Data", "", "as the caller names it, such as clean or augmented")
    weight_decay: np.ndarray = column("Weight decay", "", "of the L2 term; 0 for the NLL alone")
    batches: np.ndarray = column("Mini-batches", "", "how many were measured")
    nep: np.ndarray = column(
        "Negative eigenvalue proportion (NEP)",
        "",
        "fraction of the leading eigenvalues below 0",
    )
    nep_low: np.ndarray = column("NEP, lower end", "", "of its 95% interval over mini-batches")
    nep_high: np.ndarray = column("NEP, upper end", "", "of its 95% interval over mini-batches")
    ape: np.ndarray = column(
        "Average positive eigenvalue (APE)", "", "mean of the leading eigenvalues above 0"
    )
    ape_low: np.ndarray = column(
        "APE, lower end", "", "of its 95% interval; NaN for heavy-tailed mini-batches"
    )
    ape_high: np.ndarray = column("APE, upper end", "", "of its 95% interval over mini-batches")
    ape_median: np.ndarray = column(
        "Median positive eigenvalue", "", "median of the leading eigenvalues above 0"
    )
    ape_log_mean: np.ndarray = column(
        "Geometric mean of positive eigenvalues", "", "less sensitive to single mini-batches"
    )
    ape_log_mean_low: np.ndarray = column(
        "Geometric mean, lower end", "", "of its 95% interval over mini-batches"
    )
    ape_log_mean_high: np.ndarray = column(
        "Geometric mean, upper end", "", "of its 95% interval over mini-batches"
    )
    largest: np.ndarray = column("Largest eigenvalue", "", "mean over mini-batches")
    largest_converged: np.ndarray = column(
        "Converged largest", "", "fraction of the largest eigenvalues that converged"
    )
    smallest: np.ndarray = column(
        "Smallest eigenvalue", "", "mean over mini-batches; NaN unless all converged"
    )
    smallest_converged: np.ndarray = column(
        "Converged smallest", "", "fraction of the smallest eigenvalues that converged"
    )
    nll: np.ndarray = column("NLL", "nats", "mean loss over mini-batches")
    converged: np.ndarray = column(
        "Converged", "", "fraction of the leading eigenvalues that converged"
    )
    k: int = scalar("k", "", "number of leading eigenvalues per mini-batch", default=0)
    tol: float = scalar("Tolerance", "", "relative residual of convergence", default=0.01)
    requested: int = scalar("Requested mini-batches", "", "0: all of the data", default=0)
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    def findings(self) -> tuple[Finding, ...]:
        """NEP and APE with their intervals, convergence, and the limit of stability."""
        findings = [finding for row in range(len(self)) for finding in self._findings_of(row)]
        done = int(self.batches.min()) if len(self) else 0
        if 0 < done < self.requested:
            findings.append(
                Finding(f"{done} of {self.requested} mini-batches within the time budget")
            )
        return tuple(findings)

    def answers(self) -> tuple[Answer, ...]:
        """NEP, APE, the geometric mean of the positive eigenvalues, and the largest one."""
        answers = []
        for row in range(len(self)):
            name = self.name_of(row)
            answers += [
                Answer(
                    SHARPNESS_QUESTION,
                    f"{quantity}, {name}",
                    float(getattr(self, field)[row]),
                    float(getattr(self, f"{field}_low")[row]),
                    float(getattr(self, f"{field}_high")[row]),
                    over="mini-batches",
                    claim="C1",
                )
                for field, quantity in (
                    ("ape_log_mean", _GEOMETRIC),
                    ("ape", _APE),
                )
                if np.isfinite(getattr(self, field)[row])
            ]
            if self.largest_converged[row] == 1:
                largest = float(self.largest[row])
                answers.append(
                    Answer(SHARPNESS_QUESTION, f"{_LARGEST}, {name}", largest, claim="C1")
                )
            answers.append(
                Answer(
                    "Is the loss convex?",
                    f"{_NEP}, {name}",
                    float(self.nep[row]),
                    float(self.nep_low[row]),
                    float(self.nep_high[row]),
                    unit="%",
                    over="mini-batches",
                    claim="C2",
                )
            )
        return tuple(answers)

    def name_of(self, row: int) -> str:
        """Objective, images, phase and data of a row."""
        names = [str(name) for name in (self.phase[row], self.data[row]) if name]
        label = objective_label(self.provenance.split, float(self.weight_decay[row]))
        return ", ".join([label, *names])

    def _findings_of(self, row: int) -> list[Finding]:
        batches = int(self.batches[row])
        size = self.provenance.batch_size
        of = f" of {size} images" if size else ""
        plural = "mini-batch" if batches == 1 else "mini-batches"
        nep = (
            f"{self.nep[row]:.0%}{self._interval('nep', row, percent=True)} are negative (NEP)"
        )
        positive = "none is positive"
        if np.isfinite(self.ape[row]):
            positive = (
                f"the positive ones average {self.ape[row]:.3g}{self._interval('ape', row)} "
                f"(APE; geometric mean {self.ape_log_mean[row]:.3g}"
                f"{self._interval('ape_log_mean', row)}, median {self.ape_median[row]:.3g})"
            )
        few = f", too few for an interval (at least {MIN_BATCHES})"
        findings = [
            Finding(
                f"leading Hessian eigenvalues of the {self.name_of(row)}: {nep}, {positive}; "
                f"{batches} {plural}{of}{few if batches < MIN_BATCHES else ''}"
            )
        ]
        if self.converged[row] < 1:
            findings.append(
                Finding(
                    f"{1 - self.converged[row]:.0%} of the leading Hessian eigenvalues of the "
                    f"{self.name_of(row)} did not converge to a relative residual of "
                    f"{self.tol:g}; each is within its residual of an eigenvalue",
                    code="VP106",
                )
            )
        return findings + stability_findings(float(self.largest[row]), self.learning_rate)

    def _interval(self, field: str, row: int, *, percent: bool = False) -> str:
        low, high = (float(getattr(self, f"{field}_{end}")[row]) for end in ("low", "high"))
        if not (np.isfinite(low) and np.isfinite(high)):
            return ""
        return f" [{low:.0%}, {high:.0%}]" if percent else f" [{low:.3g}, {high:.3g}]"


@result_type("hessian-curves")
class HessianCurves(Result):
    """Densities of the magnitudes of eigenvalues, of negative and of positive ones.

    They are per decade: over log10 |value|, the two parts of a curve together have area 1.
    """

    phase: np.ndarray = column("Phase", "", "of training, as the caller names it")
    data: np.ndarray = column("Data", "", "as the caller names it, such as clean or augmented")
    weight_decay: np.ndarray = column("Weight decay", "", "of the L2 term; 0 for the NLL alone")
    sign: np.ndarray = column("Sign", "", "-1 for negative eigenvalues, 1 for positive ones")
    value: np.ndarray = column("Hessian eigenvalue", "", "where the density is evaluated")
    density: np.ndarray = column("Density", "1/decade", "of the leading eigenvalues")


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
        *_end(part, "LA", required=False),
        *_end(part, "SA", required=True),
        float(leading.nll[leading.rank == 1].mean()),
        float(leading.converged.mean()),
    )


def _by_mini_batch(
    part: HessianSpectrum, summary: HessianSummary, row: int
) -> dict[str, np.ndarray]:
    """Values of each mini-batch of one phase, data set and objective by quantity."""
    if summary.batches[row] < MIN_BATCHES:
        return {}
    leading = part.select(part.rank > 0)
    values = [leading.value[leading.batch == n] for n in np.unique(part.batch)]
    quantities = {_NEP: np.array([(v < 0).mean() for v in values])}
    positive = [v[v > 0] for v in values]
    counts = np.array([len(v) for v in positive], dtype=float)
    if np.isfinite(summary.ape_log_mean_low[row]):
        logs = linearized_ratio(np.array([np.log(v).sum() for v in positive]), counts)
        geometric = float(summary.ape_log_mean[row])
        quantities[_GEOMETRIC] = geometric * (1 + logs - np.log(geometric))
    if np.isfinite(summary.ape_low[row]):
        quantities[_APE] = linearized_ratio(np.array([v.sum() for v in positive]), counts)
    if summary.largest_converged[row] == 1:
        ends = part.select((part.rank == 0) & (part.which == "LA"))
        quantities[_LARGEST] = ends.value[np.argsort(ends.batch)]
    return quantities


def _end(part: HessianSpectrum, which: str, *, required: bool) -> tuple[float, float]:
    """Mean of one end of the spectrum, and the fraction that converged."""
    rows = (part.rank == 0) & (part.which == which)
    converged = float(part.converged[rows].mean())
    valid = converged == 1 or not required
    return (float(part.value[rows].mean()) if valid else float("nan")), converged


def _named_columns(kind: type[Result], rows: list[tuple]) -> dict[str, np.ndarray]:
    names = [name for name, info in kind.infos().items()]
    columns = list(zip(*rows, strict=True))
    return {n: np.array(c) for n, c in zip(names[: len(columns)], columns, strict=True)}
