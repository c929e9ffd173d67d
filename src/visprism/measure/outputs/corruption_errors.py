"""Corruption errors: one number for each corruption, and one for all.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations, sec. 4.1.
"""

from collections.abc import Mapping

import numpy as np

from visprism.core.errors import InputError
from visprism.measure.outputs.robustness import CLEAN, Robustness
from visprism.results.base import Result, column, result_type, scalar

# AlexNet's error on ImageNet-C, mean over the five severities (Hendrycks and Dietterich 2019,
# table 1, in full digits from the authors' repository).
ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


@result_type("corruption-errors")
class CorruptionErrors(Result):
    """The error rate of each corruption, mean over its severities; one row for each."""

    corruption: np.ndarray = column("Corruption")
    error: np.ndarray = column("Error rate", "", "share of images that are wrong")
    ece: np.ndarray = column("ECE", "", "mean over severities")
    reference: np.ndarray = column(
        "AlexNet's error", "", "the reference's error; NaN where there is none"
    )
    relative: np.ndarray = column(
        "Relative to it", "", "error over the reference's; NaN unless all severities are there"
    )
    clean_error: float = scalar("Clean error", default=float("nan"))
    mean_error: float = scalar("Mean error", "", "over corruptions", default=float("nan"))
    mce: float = float(
        "nan"
    )  # mean of `relative` over the reference's; NaN unless all are there

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        worst = int(self.error.argmax())
        clean = "" if np.isnan(self.clean_error) else f", {self.clean_error:.1%} of clean ones"
        mce = "" if np.isnan(self.mce) else f", mCE {self.mce:.1%}"
        return [
            f"{self.mean_error:.1%} of the corrupted images are wrong{clean}{mce}; most under "
            f"{self.corruption[worst].replace('_', ' ')} ({self.error[worst]:.1%})"
        ]


def corruption_errors(
    measured: Robustness, *, reference: Mapping[str, float] | None = None
) -> CorruptionErrors:
    """The error of each corruption, and the mCE where a reference applies.

    CE_c = sum over severities of the error / sum of the reference's, mCE = mean over c. Without
    a reference, as for CIFAR-10-C, the plain mean over corruptions is what papers report.

    Args:
        measured: of all corruptions that count.
        reference: mean error of a reference over five severities, by corruption: `ALEXNET` for
            models of ImageNet's 1,000 classes.

    Raises:
        InputError: if no corruption was measured.

    Source: Hendrycks and Dietterich (2019), sec. 4.1.
    """
    names = [c for c in dict.fromkeys(measured.corruption.tolist()) if c != CLEAN[0]]
    if not names:
        raise InputError("no corruption was measured; there is nothing to average")
    known = reference or {}
    rows = measured.select(np.isnan(measured.cutoff))
    of = {name: rows.select(rows.corruption == name) for name in names}
    error = np.array([1 - _mean(of[name], "accuracy") for name in names])
    against = np.array([known.get(name, np.nan) for name in names])
    whole = [set(of[name].severity.tolist()) == {1, 2, 3, 4, 5} for name in names]
    relative = np.where(whole, error / against, np.nan)
    counted = relative[np.isfinite(against)]
    complete = bool(known) and len(counted) == len(known)
    clean = rows.select(rows.corruption == CLEAN[0])
    return CorruptionErrors(
        corruption=np.array(names),
        error=error,
        ece=np.array([_mean(of[name], "ece") for name in names]),
        reference=against,
        relative=relative,
        clean_error=1 - _mean(clean, "accuracy") if len(clean) else float("nan"),
        mean_error=float(error.mean()),
        mce=float(counted.mean()) if complete else float("nan"),
        provenance=measured.provenance,
    )


def _mean(rows: Robustness, metric: str) -> float:
    """Mean over severities."""
    return float(rows.value[rows.metric == metric].mean())
