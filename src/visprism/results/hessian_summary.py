"""Summary of the Hessian eigenvalues of mini-batches: NEP, APE and the ends of the spectrum.

Source: Park & Kim (2022), How do vision transformers work?, sec. 2 and app. C: NEP and APE.
"""

import numpy as np

from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.results.hessian_statistics import MIN_BATCHES, MIN_BATCHES_APE
from visprism.results.loss import (
    objective_label,
    stability_findings,
)
from visprism.table.result import Result, column, result_type, scalar

# Quantities, as answers and values of mini-batches name them.
APE = "mean of positive leading Hessian eigenvalues (APE)"
GEOMETRIC = "geometric mean of positive leading Hessian eigenvalues"
NEP = "negative leading Hessian eigenvalues (NEP)"
LARGEST = "largest Hessian eigenvalue, mean over mini-batches"


@result_type("hessian-summary")
class HessianSummary(Result):
    """NEP and APE of each phase, data set and objective; one row for each.

    Intervals are 95% intervals over mini-batches, which are independent; the eigenvalues of
    one mini-batch are not. They are NaN for fewer than 10 mini-batches, and that
    of APE for fewer than 32.
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
    ape_low: np.ndarray = column("APE, lower end", "", "of its 95% interval over mini-batches")
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
        "Smallest eigenvalue",
        "",
        "mean over mini-batches of Ritz values, which are upper bounds; equal where converged",
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
                    questions.FLATNESS.text,
                    f"{quantity}, {name}",
                    float(getattr(self, field)[row]),
                    float(getattr(self, f"{field}_low")[row]),
                    float(getattr(self, f"{field}_high")[row]),
                    over="mini-batches",
                    claim="C1",
                    variant=name,
                )
                for field, quantity in (
                    ("ape_log_mean", GEOMETRIC),
                    ("ape", APE),
                )
                if np.isfinite(getattr(self, field)[row])
            ]
            if self.largest_converged[row] == 1:
                largest = float(self.largest[row])
                answers.append(
                    Answer(
                        questions.FLATNESS.text,
                        f"{LARGEST}, {name}",
                        largest,
                        claim="C1",
                        variant=name,
                    )
                )
            answers.append(
                Answer(
                    questions.CURVATURE.text,
                    f"{NEP}, {name}",
                    float(self.nep[row]),
                    float(self.nep_low[row]),
                    float(self.nep_high[row]),
                    unit="%",
                    over="mini-batches",
                    claim="C2",
                    symbol="NEP",
                    reading=self._negative_curvature(row),
                )
            )
        return tuple(answers)

    def _negative_curvature(self, row: int) -> str:
        """Whether there is any, by the smallest eigenvalue; leading ones may all be positive.

        A Ritz value is at least the smallest eigenvalue, so that a negative one proves negative
        curvature whether it converged or not. A positive one excludes it only if it converged.
        """
        negative, batches = float(self.negative_batches[row]), int(self.batches[row])
        if negative > 0:
            where = (
                "" if negative == batches else f" in {negative:.0f} of {batches} mini-batches"
            )
            return f"yes{where} ({self._smallest(row)})"
        if self.nep[row] > 0:
            return "yes"
        if self.smallest_converged[row] == 1 and np.isfinite(self.smallest[row]):
            return f"no ({self._smallest(row)})"
        return "open (smallest eigenvalue not converged)"

    def _smallest(self, row: int) -> str:
        """The smallest eigenvalue with its number of mini-batches, or the bound on it."""
        batches = int(self.batches[row])
        bound = "" if self.smallest_converged[row] == 1 else "at most "
        mean = f"mean of {batches} mini-batches" if batches > 1 else "1 mini-batch"
        return f"smallest eigenvalue {bound}{self.smallest[row]:.3g}, {mean}"

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
            geometric = (
                f"; geometric mean {self.ape_log_mean[row]:.3g}"
                f"{self._interval('ape_log_mean', row)}, median {self.ape_median[row]:.3g}"
            )
            positive = (
                f"the positive ones average {self.ape[row]:.3g}{self._interval('ape', row)} "
                f"(APE{self._missing_ape_interval(row)}"
                f"{geometric if np.isfinite(self.ape_log_mean[row]) else ''})"
            )
        few = f", too few for an interval (at least {MIN_BATCHES})"
        findings = [
            Finding(
                f"leading Hessian eigenvalues of the {self.name_of(row)}: {nep}, {positive}; "
                f"{batches} {plural}{of}{few if batches < MIN_BATCHES else ''}"
            )
        ]
        if np.isfinite(self.negative_batches[row]):
            reading = self._negative_curvature(row)
            findings.append(
                Finding(
                    f"negative curvature of the {self.name_of(row)}: {reading}",
                    code="VP111" if reading.startswith("yes") and self.nep[row] == 0 else "",
                )
            )
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

    def _missing_ape_interval(self, row: int) -> str:
        """Why APE has no interval where NEP has one."""
        if np.isfinite(self.ape_low[row]) or np.isnan(self.nep_low[row]):
            return ""
        if self.batches[row] < MIN_BATCHES_APE:
            return f", without an interval: fewer than {MIN_BATCHES_APE} mini-batches"
        return ", without an interval: too few mini-batches have different positive eigenvalues"

    def _interval(self, field: str, row: int, *, percent: bool = False) -> str:
        low, high = (float(getattr(self, f"{field}_{end}")[row]) for end in ("low", "high"))
        if not (np.isfinite(low) and np.isfinite(high)):
            return ""
        return f" [{low:.0%}, {high:.0%}]" if percent else f" [{low:.3g}, {high:.3g}]"
