"""Quadrature: the density of all eigenvalues of an operator, from a few products."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.linalg.krylov import Krylov, Product


@dataclass(frozen=True)
class Quadrature:
    """Gauss quadrature of the spectral measure of A with respect to each start vector."""

    nodes: Float[Tensor, "runs m"]  # Ritz values, ascending
    weights: Float[Tensor, "runs m"]  # squared first coordinates; those of a run add up to 1
    residuals: Float[Tensor, "runs m"]  # |A x - theta x|


def quadrature(
    product: Product,
    start: Float[Tensor, "runs p"],
    *,
    steps: int,
    run: Run = DEFAULT_RUN,
) -> Quadrature:
    """Stochastic Lanczos quadrature: `steps` nodes and weights of each start vector.

    For a start of random signs or normal numbers, the mean over runs of sum_i w_i f(theta_i)
    tends to tr f(A) / p; it is exact in each run for the run's own start if f is a polynomial
    of degree up to 2 steps - 1.

    Costs `steps` products with all runs at once, and memory for runs x steps vectors.

    Args:
        product: one operator, (1, s, p) -> (1, s, p).
        start: one vector for each run.
        steps: number of Lanczos steps, at most p.
        run: progress by step, and deadline.

    Raises:
        InputError: if `steps` is not in 1 ... p, or as `Krylov`.
        TimeBudgetError: after the deadline of the run.

    Sources: Golub & Welsch (1969), Calculation of Gauss quadrature rules; Ubaru, Chen & Saad
    (2017), Fast estimation of tr(f(A)) via stochastic Lanczos quadrature.
    """
    p = start.shape[1]
    if not 1 <= steps <= p:
        raise InputError(
            f"steps must be between 1 and {p} (the size of the operator), got {steps}"
        )

    def product_of_runs(vectors: Float[Tensor, "runs 1 p"]) -> Float[Tensor, "runs 1 p"]:
        return product(vectors.transpose(0, 1)).transpose(0, 1)

    space = Krylov(product_of_runs, start[:, None], capacity=steps)
    for _ in run.track(range(steps), "Lanczos steps"):
        space.extend()
    ritz = space.ritz()
    return Quadrature(ritz.values, ritz.coordinates[:, 0] ** 2, ritz.residuals)
