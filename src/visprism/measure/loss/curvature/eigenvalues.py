"""Leading eigenvalues of the Hessian of an objective, and their eigenvectors."""

from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism import linalg
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.linalg import Request, Which
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Matrix, Products, random_normal, result_fields
from visprism.results.loss import Eigenvalues


def top_eigenvalues(objective: Objective, **options: Any) -> Eigenvalues:
    """The k leading eigenvalues of an objective's Hessian; options as `top_eigenpairs`."""
    return top_eigenpairs(objective, **options)[0]


def top_eigenpairs(
    objective: Objective,
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-3,
    matrix: Matrix = "hessian",
    num_starts: int = 1,
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
        matrix: "hessian", or "gauss-newton", which has no negative eigenvalue.
        num_starts: start vectors, which go through the products together.
        max_products: number of products after which to stop; what has not converged is marked.
        learning_rate: of training, to compare the sharpness with 2 / learning rate.
        run: seed, progress, provenance and deadline; by default that of the objective.

    Raises:
        InputError: if k is not in 1 ... P, the loss has no second derivatives or is not finite.
        TimeBudgetError: after the deadline of the run.

    Sources: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Park & Kim (2022), fig. 4.
    """
    if num_starts < 1:
        raise InputError(f"num_starts must be at least 1, got {num_starts}")
    objective = objective.with_run(run)
    products = Products(objective, matrix)
    start = random_normal(objective, num_starts, objective.run.seed, "eigenvalues")
    (pairs,) = linalg.eigenpairs(
        products,
        start[None],
        [Request(k, which)],
        tol=tol,
        max_products=max_products,
        run=objective.run,
    )
    values = Eigenvalues(
        rank=np.arange(1, k + 1),
        value=pairs.values[0].numpy(),
        residual=pairs.residuals[0].numpy(),
        converged=pairs.converged[0].numpy(),
        which=which,
        tol=tol,
        products=products.count,
        learning_rate=float("nan") if learning_rate is None else learning_rate,
        **result_fields(products),
    )
    return values, pairs.vectors[0]
