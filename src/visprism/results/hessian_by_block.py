"""Hessian of the loss with respect to the parameters of each block."""

from typing import ClassVar

import numpy as np

from visprism.core.statistics import t_quantile
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, selection_text
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import SeriesPerBlock


@result_type("hessian-by-block")
class HessianByBlock(SeriesPerBlock):
    """Trace and leading eigenvalue of each diagonal block of the Hessian, one for each part.

    A part is a block of the network, or all blocks of a kind or stage. There is a row for each
    part and fraction of the images. Intervals are over random vectors.
    """

    value_name: ClassVar[str] = "trace"
    series_name: ClassVar[str] = "fraction"

    fraction: np.ndarray = column(
        "Images", "", "whose mean loss is differentiated: '64 images'"
    )
    trace: np.ndarray = column("Trace of the Hessian", "", "sum of the eigenvalues of the part")
    trace_error: np.ndarray = column("Standard error of the trace", "", "over random vectors")
    eigenvalue: np.ndarray = column(
        "Leading Hessian eigenvalue", "", "of the part, the largest in magnitude"
    )
    residual: np.ndarray = column(
        "Residual", "", "‖Hv - λv‖; an eigenvalue is within this distance"
    )
    converged: np.ndarray = column(
        "Converged", "", "residual at most tolerance times |value|, and no other ranks before"
    )
    parameters: np.ndarray = column("Parameters", "", "of the part")
    nll: np.ndarray = column("NLL", "nats", "mean loss of the images")
    probes: int = scalar("Random vectors", "", "of each trace")
    by: str = scalar("Parts", "", "blocks, kinds or stages")

    @property
    def units(self) -> int:
        """Number of random vectors, over which the standard errors are taken."""
        return self.probes

    @property
    def margins(self) -> np.ndarray:
        """Student's t quantile of the random vectors times the standard errors."""
        return t_quantile(self.probes) * self.errors

    @property
    def units_text(self) -> str:
        """What the intervals are taken over."""
        return f"{self.probes} random vectors"

    def findings(self) -> tuple[Finding, ...]:
        """For each number of images the parts with the largest trace and eigenvalue."""
        findings = []
        for name, rows in self.series().items():
            sharpest = int(rows[np.abs(self.eigenvalue[rows]).argmax()])
            largest = int(rows[self.trace[rows].argmax()])
            several = selection_text(len(rows))
            findings.append(
                Finding(
                    f"{_training(name, self.provenance.split)}: largest Hessian trace of "
                    f"{len(rows)} {self.by}s {self._interval(largest)} at "
                    f"{self.block[largest]}{several}; largest leading eigenvalue "
                    f"{self.eigenvalue[sharpest]:.4g} at {self.block[sharpest]}{self.over()}"
                )
            )
        missing = int((~self.converged).sum())
        if missing:
            findings.append(
                Finding(
                    f"{missing} of {len(self)} eigenvalues did not converge; each is within "
                    "its residual of an eigenvalue",
                    code="VP106",
                )
            )
        return tuple(findings)


def _training(images: str, split: str) -> str:
    """The number of images with their split."""
    return images_text(int(images.split()[0].replace(",", "")), split)
