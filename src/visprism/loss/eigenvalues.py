"""Leading eigenvalues of the Hessian of an objective.

Source: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Park & Kim (2022), fig. 4.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.core.run import Run
from visprism.estimates.findings import Finding
from visprism.loss.krylov import Request, Which, eigenpairs
from visprism.loss.objective import Objective
from visprism.loss.products import Products, random_normal, result_fields
from visprism.table.result import Result, column, estimate, result_type, scalar

WHICH_LABELS = {
    "LM": "largest in magnitude",
    "LA": "largest",
    "SA": "smallest",
    "BE": "largest and smallest",
}
_SPLITS = {"train": "training images", "test": "test images"}
RESIDUAL = "‖Hv - λv‖; an eigenvalue is within this distance"
CONVERGED = "residual at most tolerance times |value|, and no other ranks before"


def objective_label(split: str, weight_decay: float = 0.0) -> str:
    """Name of an objective and the images it is a mean over.

    Example:
        >>> objective_label("train")
        'NLL of training images'
        >>> objective_label("test", 0.05)
        'NLL + L2 (weight decay 0.05, as in Park & Kim) of test images'
    """
    terms = "NLL"
    if weight_decay:
        terms = f"NLL + L2 (weight decay {weight_decay:g}, as in Park & Kim)"
    images = _SPLITS.get(split, f"{split} images" if split else "")
    return f"{terms} of {images}" if images else terms


@result_type("curvature")
class Curvature(Result):
    """A measurement of the matrix of second derivatives of an objective."""

    parameters: int = scalar("Parameters", "", "size of the matrix, number of parameters")
    nll: float = scalar("NLL", "nats", "mean loss of the images")
    l2: float = scalar("L2 term", "nats", "half the weight decay times the squared norm")
    weight_decay: float = scalar("Weight decay", "", "of the L2 term; 0 without it")

    @property
    def objective(self) -> str:
        """Name of the objective and of the images."""
        return objective_label(self.provenance.split, self.weight_decay)


@result_type("eigenvalues", "Leading eigenvalues")
class Eigenvalues(Curvature):
    """Eigenvalues at the ends of the spectrum; one row for each, in order of rank.

    The leading Hessian eigenvalues of the mean loss over all images, with residuals. Hollow
    points did not converge.
    """

    row_names = ("objectives",)

    rank: np.ndarray = column("Rank", "", "1 for the leading eigenvalue")
    value: np.ndarray = estimate(
        "Leading Hessian eigenvalue",
        "",
        "curvature along its eigenvector; exact for these images",
        asks="How flat is the loss?",
        better="lower",
        over="",
        comparison="none",
    )
    residual: np.ndarray = column("Residual", "", RESIDUAL)
    converged: np.ndarray = column("Converged", "", CONVERGED)
    which: str = scalar("Which", "", "LM (magnitude), LA (largest), SA (smallest), BE (both)")
    tol: float = scalar("Tolerance", "", "relative residual of convergence")
    products: int = scalar("Products", "", "Hessian-vector products that were needed")
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    @property
    def objectives(self) -> list[str]:
        """The objective of each row, which is the same."""
        return [self.objective] * len(self)

    def answered(self, name: str) -> np.ndarray:
        """The leading eigenvalue of the Hessian, if it converged."""
        return np.arange(int(self.which != "SA" and bool(self.converged[0])))

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The objective is no part of the measure."""
        return {"measure": "", "variant": self.objective}

    def sentences(self) -> Iterator[str | Finding]:
        """The eigenvalues, how many converged, and the limit of stability."""
        values = ", ".join(f"{value:.4g}" for value in self.value)
        yield (
            f"leading Hessian eigenvalues ({WHICH_LABELS[self.which]}) of the "
            f"{self.objective}: {values}; {self.images_text}, {self.parameters:,} parameters"
        )
        yield from unconverged(self.converged, self.tol)
        yield from stability_findings(float(self.value.max()), self.learning_rate)


def unconverged(converged: np.ndarray, tol: float) -> list[Finding]:
    """VP106 where eigenvalues did not converge."""
    missing = int((~converged).sum())
    if not missing:
        return []
    return [
        Finding(
            f"{missing} of {len(converged)} eigenvalues did not converge to a relative "
            f"residual of {tol:g}; each is within its residual of an eigenvalue",
            code="VP106",
        )
    ]


def stability_findings(largest: float, learning_rate: float) -> list[Finding]:
    """VP110 where the largest eigenvalue exceeds 2 / learning rate.

    Gradient descent without momentum on a quadratic with that curvature diverges.

    Source: Cohen et al. (2021), Gradient descent on neural networks typically occurs at the
    edge of stability.
    """
    if not (learning_rate > 0 and largest > 2 / learning_rate):
        return []
    return [
        Finding(
            f"the largest Hessian eigenvalue, {largest:.4g}, is above 2 / learning rate = "
            f"{2 / learning_rate:.4g}: gradient descent without momentum would diverge along "
            "its eigenvector",
            code="VP110",
        )
    ]


def top_eigenvalues(objective: Objective, **options: Any) -> Eigenvalues:
    """The k leading eigenvalues of an objective's Hessian; options as `top_eigenpairs`."""
    return top_eigenpairs(objective, **options)[0]


def top_eigenpairs(
    objective: Objective,
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-3,
    max_products: int = 300,
    learning_rate: float | None = None,
    run: Run | None = None,
) -> tuple[Eigenvalues, Float[Tensor, "k p"]]:
    """The k leading eigenvalues of an objective's Hessian, and the eigenvectors as unit rows.

    An eigenvalue of H lies within the residual ‖Hv - λv‖ of each value. Where neighbors are
    farther apart than the residual, the error is about its square over their distance, so that
    a relative residual of 1e-2 usually means four correct digits. Computed by Lanczos iteration
    with full reorthogonalization.

    Cost: one Hessian product per step, 14 to 35 for five eigenvalues of a network, and memory
    for 32 vectors like theta and for the graphs of the batches that fit.

    Args:
        objective: the function that is differentiated.
        k: number of eigenvalues.
        which: largest in magnitude (LM), largest (LA), smallest (SA), or both ends (BE).
        tol: relative residual of convergence.
        max_products: number of products after which to stop; what has not converged is marked.
        learning_rate: of training, to compare the sharpness with 2 / learning rate.
        run: seed, progress, provenance and deadline; by default the objective's.

    Sources: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Park & Kim (2022), fig. 4.
    """
    objective = objective.with_run(run)
    products = Products(objective)
    start = random_normal(objective, objective.run.seed, "eigenvalues")
    (pairs,) = eigenpairs(
        products,
        start,
        [Request(k, which)],
        tol=tol,
        max_products=max_products,
        run=objective.run,
    )
    values = Eigenvalues(
        rank=np.arange(1, k + 1),
        value=pairs.values.numpy(),
        residual=pairs.residuals.numpy(),
        converged=pairs.converged.numpy(),
        which=which,
        tol=tol,
        products=products.count,
        learning_rate=float("nan") if learning_rate is None else learning_rate,
        **result_fields(products),
    )
    return values, pairs.vectors
