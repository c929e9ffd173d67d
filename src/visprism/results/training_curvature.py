"""Curvature during training: leading Hessian eigenvalues and the edge of stability."""

from collections.abc import Iterator

import numpy as np

from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text
from visprism.table.result import Result, column, result_type, scalar

MATRIX_LABELS = {"hessian": "Hessian", "preconditioned": "preconditioned Hessian"}
POINT_LABELS = {"weights": "", "perturbed": " at SAM's perturbed weights"}


@result_type("training-curvature")
class TrainingCurvature(Result):
    """Leading eigenvalues after some updates of training; one row for each, in order of rank.

    The matrix is the Hessian of the training loss on fixed images, or P^-1/2 H P^-1/2 with the
    preconditioner P of the optimizer. Updates are stable while its eigenvalues are below the
    threshold.
    """

    step: np.ndarray = column("Step", "", "number of updates before the measurement")
    matrix: np.ndarray = column("Matrix", "", "hessian, or preconditioned by the optimizer")
    point: np.ndarray = column("Point", "", "the weights, or perturbed as by SAM")
    rank: np.ndarray = column("Rank", "", "1 for the leading eigenvalue")
    eigenvalue: np.ndarray = column("Eigenvalue", "", "of the matrix, the largest ones")
    residual: np.ndarray = column(
        "Residual", "", "‖Av - λv‖; an eigenvalue is within this distance"
    )
    converged: np.ndarray = column(
        "Converged", "", "residual at most tolerance times |value|, and no other ranks before"
    )
    threshold: np.ndarray = column(
        "Stability threshold", "", "largest stable eigenvalue; NaN: not known for this matrix"
    )
    learning_rate: np.ndarray = column("Learning rate", "", "of the last update")
    nll: np.ndarray = column("NLL", "nats", "mean loss of the fixed images at the point")
    gradient_norm: np.ndarray = column("Gradient norm", "", "of the loss of the fixed images")
    alignment: np.ndarray = column(
        "Gradient alignment",
        "",
        "fraction of the squared gradient norm in the space of eigenvectors up to this rank",
    )
    products: np.ndarray = column("Products", "", "Hessian-vector products of the measurement")
    optimizer: str = scalar("Optimizer", "", "that made the updates")
    sam_rho: float = scalar("SAM radius", "", "of the perturbed weights; 0: without SAM")
    parameters: int = scalar("Parameters", "", "size of the matrix, number of parameters")
    tol: float = scalar("Tolerance", "", "relative residual of convergence")
    batch_norm: str = scalar(
        "BatchNorm", "", "'batch': statistics of each batch, as in training; or 'frozen'"
    )

    def leading(self) -> Iterator[tuple[str, str, "TrainingCurvature"]]:
        """Matrix, point and rows of rank 1 of each series, in the order of the steps."""
        for matrix, point in dict.fromkeys(
            zip(self.matrix.tolist(), self.point.tolist(), strict=True)
        ):
            rows = (self.matrix == matrix) & (self.point == point)
            yield matrix, point, self.select(rows & (self.rank == 1))

    def findings(self) -> tuple[Finding, ...]:
        """The eigenvalue at both ends, its ratio to the threshold, and the alignment."""
        if not len(self):
            return (Finding("no curvature was measured: training had too few steps"),)
        findings = [
            Finding(_series_text(rows, matrix, point)) for matrix, point, rows in self.leading()
        ]
        findings.append(Finding(self._alignment_text()))
        missing = int((~self.converged).sum())
        if missing:
            findings.append(
                Finding(
                    f"{missing} of {len(self)} eigenvalues did not converge to a relative "
                    f"residual of {self.tol:g}; each is within its residual of an eigenvalue",
                    code="VP106",
                )
            )
        return tuple(findings)

    def _alignment_text(self) -> str:
        k = int(self.rank.max())
        rows = self.select(
            (self.rank == k) & (self.matrix == self.matrix[0]) & (self.point == "weights")
        )
        images = images_text(self.provenance.images, self.provenance.split)
        vectors = "leading eigenvector" if k == 1 else f"{k} leading eigenvectors"
        return (
            f"the {vectors} of the {MATRIX_LABELS[str(self.matrix[0])]} hold "
            f"{np.nanmean(rows.alignment):.1%} of the squared gradient norm on average over "
            f"{len(rows)} steps, {k / self.parameters:.2g} expected of a random direction "
            f"(no intervals: one loss, of {images})"
        )


def _series_text(rows: TrainingCurvature, matrix: str, point: str) -> str:
    """The eigenvalue at the first and last step, and how often it exceeds the threshold."""
    text = (
        f"leading eigenvalue of the {MATRIX_LABELS[matrix]}{POINT_LABELS[point]} "
        f"{rows.eigenvalue[0]:.4g} after step {rows.step[0]} and {rows.eigenvalue[-1]:.4g} "
        f"after step {rows.step[-1]} ({rows.optimizer})"
    )
    thresholds = np.isfinite(rows.threshold)
    if not thresholds.any():
        return f"{text}; without a stability threshold"
    ratios = rows.eigenvalue[thresholds] / rows.threshold[thresholds]
    return (
        f"{text}; {ratios[-1]:.2f} times the stability threshold at the end, above it in "
        f"{int((ratios > 1).sum())} of {len(ratios)} measurements"
    )
