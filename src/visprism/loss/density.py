"""Density of all eigenvalues of a matrix, and their sum, from products with random vectors."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.krylov import Krylov, Product
from visprism.loss.products import Products, random_signs


def quadrature(
    product: Product, start: Float[Tensor, "runs p"], *, steps: int, run: Run = DEFAULT_RUN
) -> tuple[Float[Tensor, "runs m"], Float[Tensor, "runs m"], Float[Tensor, "runs m"]]:
    """Stochastic Lanczos quadrature: `steps` nodes, weights and residuals of each start vector.

    The nodes are Ritz values, ascending; the weights of a run, squared first coordinates, add
    up to 1; an eigenvalue lies within the residual of each node.

    For a start of random signs or normal numbers, the mean over runs of sum_i w_i f(theta_i)
    tends to tr f(A) / p; it is exact in each run for the run's own start if f is a polynomial
    of degree up to 2 steps - 1.

    Costs `steps` products for each run, and memory for `steps` vectors.

    Sources: Golub & Welsch (1969), Calculation of Gauss quadrature rules; Ubaru, Chen & Saad
    (2017), Fast estimation of tr(f(A)) via stochastic Lanczos quadrature.
    """
    p = start.shape[1]
    if not 1 <= steps <= p:
        raise InputError(
            f"steps must be between 1 and {p} (the size of the operator), got {steps}"
        )
    every, space = [], None
    with Compute(str(start.device)).arithmetic():
        for number in run.track(range(steps * len(start)), "Lanczos steps"):
            if space is None:
                space = Krylov(product, start[number // steps], capacity=steps)
            space.extend()
            if space.products == steps:
                every.append(space.ritz())
                space = None
    return (
        torch.stack([ritz.values for ritz in every]),
        torch.stack([ritz.coordinates[0] ** 2 for ritz in every]),
        torch.stack([ritz.residuals for ritz in every]),
    )


def hutchinson(product: Product, probes: Float[Tensor, "n p"]) -> Float[Tensor, " n"]:
    """Unbiased estimates v^T A v of the trace, one for each probe of random signs.

    Costs one product for each probe.

    Source: Hutchinson (1989), A stochastic estimator of the trace of the influence matrix.
    """
    return _inner(probes, product(probes))


def hutchpp(product: Product, probes: Float[Tensor, "n p"]) -> Float[Tensor, " m"]:
    """Unbiased estimates of the trace whose error falls like 1/n instead of 1/sqrt(n).

    A third of the probes spans a space that contains the leading eigenvectors; its part of the
    trace is computed exactly, the rest is estimated from the other probes.

    Costs one product for each of n probes, a third of them for the space's own trace.

    Source: Meyer, Musco, Musco & Woodruff (2021), Hutch++: optimal stochastic trace estimation.
    """
    third = len(probes) // 3
    if third < 1:
        raise InputError(f"probes must be at least 3 for Hutch++, got {len(probes)}")
    with Compute(str(probes.device)).arithmetic():
        sketch, rest = probes[:third], probes[2 * third :]
        basis = torch.linalg.qr(product(sketch).mT).Q.mT  # (third, p)
        exact = _inner(basis, product(basis)).sum()
        rest = rest - (rest @ basis.mT) @ basis
        return exact + _inner(rest, product(rest))


def _inner(first: Float[Tensor, "n p"], second: Float[Tensor, "n p"]) -> Float[Tensor, " n"]:
    """Inner products of rows, in double precision on the CPU."""
    return (first.cpu().double() * second.cpu().double()).sum(1)


def trace_of_part(products: Products, probes: int) -> Float[np.ndarray, " probes"]:
    """Hutchinson's estimates of the trace of the objective's Hessian."""
    objective = products.objective
    signs = random_signs(objective, probes, objective.run.seed, "trace by block")
    return hutchinson(products, signs).numpy()
