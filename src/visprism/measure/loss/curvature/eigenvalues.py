"""Eigenvalues: the ends of the Hessian's spectrum, and the sharpest directions."""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism import linalg
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.linalg import Request, Which
from visprism.measure.loss.curvature.result_fields import (
    Curvature,
    random_normal,
    result_fields,
)
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Matrix, Products
from visprism.results.base import column, result_type, scalar

WORDS = {
    "LM": "largest in magnitude",
    "LA": "largest",
    "SA": "smallest",
    "BE": "largest and smallest",
}


@result_type("eigenvalues")
class Eigenvalues(Curvature):
    """Eigenvalues at the ends of the spectrum; one row per eigenvalue, the foremost first."""

    rank: np.ndarray = column("Rank", "", "1 for the foremost")
    value: np.ndarray = column("Eigenvalue")
    residual: np.ndarray = column(
        "Residual", "", "|A v - value v|: a true eigenvalue is no farther away"
    )
    converged: np.ndarray = column(
        "Converged", "", "residual <= tol |value|, and no other can come before it"
    )
    which: str = scalar("Which", "", "'LM', 'LA', 'SA' or 'BE'")
    tol: float = scalar("Tol")
    products: int = scalar("Products", "", "that it took")

    def sentences(self) -> list[str]:
        """The values, and how many have converged."""
        values = ", ".join(f"{value:.4g}" for value in self.value)
        of = f"NLL + L2 (weight decay {self.weight_decay:g})" if self.weight_decay else "NLL"
        return [
            f"the foremost Hessian eigenvalues of {of} ({WORDS[self.which]}) are {values}; "
            f"{int(self.converged.sum())} of {len(self)} have converged to {self.tol:g}"
        ]


def top_eigenvalues(
    objective: Objective,
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-3,
    seed: int = 0,
    matrix: Matrix = "hessian",
    block: int = 1,
    most_products: int = 300,
    seconds: float | None = None,
    provenance: Provenance | None = None,
) -> Eigenvalues:
    """The k foremost eigenvalues of an objective's Hessian, each with a bound on its error.

    An eigenvalue of H lies within the residual |H v - value v| of each value; where neighbours
    are farther apart than the residual, the error is about its square over their distance, so
    that a relative residual of 1e-2 mostly means four right digits. Lanczos with full re-
    orthogonalisation, until the bounds are small enough.

    Costs one Hessian product per step, 10 to 30 for five eigenvalues of a network, and memory
    for 32 vectors like theta and for the graphs of the batches that fit.

    Args:
        objective: what is differentiated.
        k: how many eigenvalues.
        which: largest in magnitude (LM), largest (LA), smallest (SA), or both ends (BE).
        tol: relative residual at which a value has converged.
        seed: of the start.
        matrix: "hessian", or "gauss-newton", which has no negative eigenvalue.
        block: start vectors, which go through the products side by side.
        most_products: after which to stop; what has not converged says so.
        seconds: after which to stop.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if k is not in 1 ... P, the loss has no second derivatives or is not finite.

    Sources: Golub & Van Loan (2013), Matrix computations, sec. 10.3; Park & Kim (2022), fig. 4.
    """
    return top_eigenpairs(
        objective,
        k=k,
        which=which,
        tol=tol,
        seed=seed,
        matrix=matrix,
        block=block,
        most_products=most_products,
        seconds=seconds,
        provenance=provenance,
    )[0]


def top_eigenpairs(
    objective: Objective,
    *,
    k: int = 5,
    which: Which = "LM",
    tol: float = 1e-3,
    seed: int = 0,
    matrix: Matrix = "hessian",
    block: int = 1,
    most_products: int = 300,
    seconds: float | None = None,
    provenance: Provenance | None = None,
) -> tuple[Eigenvalues, Float[Tensor, "k p"]]:
    """`top_eigenvalues`, and the eigenvectors as unit rows: the sharpest directions."""
    if block < 1:
        raise InputError(f"block is {block}; wants at least 1 start vector")
    products = Products(objective, matrix)
    (found,) = linalg.eigenpairs(
        products,
        random_normal(objective, block, seed, "eigenvalues")[None],
        [Request(k, which)],
        tol=tol,
        most_products=most_products,
        seconds=seconds,
    )
    values = Eigenvalues(
        rank=np.arange(1, k + 1),
        value=found.values[0].numpy(),
        residual=found.residuals[0].numpy(),
        converged=found.converged[0].numpy(),
        which=which,
        tol=tol,
        products=products.count,
        **result_fields(products, seed, provenance),
    )
    return values, found.vectors[0]
