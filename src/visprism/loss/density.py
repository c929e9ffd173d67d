"""Density of all eigenvalues of the Hessian, and their sum, from products with vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.krylov import Krylov, Product
from visprism.loss.objective import Objective
from visprism.loss.products import Matrix, Products, random_signs, result_fields
from visprism.results.loss import SpectralDensity, Trace


@dataclass(frozen=True)
class Quadrature:
    """Gauss quadrature of the spectral measure of A with respect to each start vector."""

    nodes: Float[Tensor, "runs m"]  # Ritz values, ascending
    weights: Float[Tensor, "runs m"]  # squared first coordinates; those of a run add up to 1
    residuals: Float[Tensor, "runs m"]  # |A x - theta x|


def quadrature(
    product: Product, start: Float[Tensor, "runs p"], *, steps: int, run: Run = DEFAULT_RUN
) -> Quadrature:
    """Stochastic Lanczos quadrature: `steps` nodes and weights of each start vector.

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
    for number in run.track(range(steps * len(start)), "Lanczos steps"):
        if space is None:
            space = Krylov(product, start[number // steps, None], capacity=steps)
        space.extend()
        if space.products == steps:
            every.append(space.ritz())
            space = None
    return Quadrature(
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
    sketch, rest = probes[:third], probes[2 * third :]
    basis = torch.linalg.qr(product(sketch).mT).Q.mT  # (third, p)
    exact = _inner(basis, product(basis)).sum()
    rest = rest - (rest @ basis.mT) @ basis
    return exact + _inner(rest, product(rest))


def _inner(first: Float[Tensor, "n p"], second: Float[Tensor, "n p"]) -> Float[Tensor, " n"]:
    """Inner products of rows, in double precision on the CPU."""
    return (first.cpu().double() * second.cpu().double()).sum(1)


def spectral_density(
    objective: Objective,
    *,
    runs: int = 4,
    steps: int = 40,
    matrix: Matrix = "hessian",
    run: Run | None = None,
) -> SpectralDensity:
    """Density of all eigenvalues of an objective's Hessian, by stochastic Lanczos quadrature.

    Each run starts from random signs and gives `steps` nodes with weights. The fraction of
    eigenvalues in an interval is the weight of its nodes, the mean of f over all eigenvalues is
    sum_i w_i f(node_i), both up to the spread of the runs. An eigenvalue lies within the
    residual of each node; the leading eigenvalue of a mean over N images depends on N, so
    compare models on the same number of images.

    Cost: runs x steps Hessian products, and memory for `steps` vectors.

    Sources: Ubaru, Chen & Saad (2017), Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature; Ghorbani, Krishnan & Xiao (2019), An investigation into neural net optimization.
    """
    if runs < 1:
        raise InputError(f"runs must be at least 1, got {runs}")
    objective = objective.with_run(run)
    products = Products(objective, matrix)
    signs = random_signs(objective, runs, objective.run.seed, "density")
    nodes = quadrature(products, signs, steps=steps, run=objective.run)
    return SpectralDensity(
        run=np.repeat(np.arange(runs), nodes.nodes.shape[1]),
        node=nodes.nodes.flatten().numpy(),
        weight=nodes.weights.flatten().numpy(),
        residual=nodes.residuals.flatten().numpy(),
        **result_fields(products),
    )


def trace(
    objective: Objective,
    *,
    probes: int = 30,
    method: Literal["hutch++", "hutchinson"] = "hutch++",
    matrix: Matrix = "hessian",
    run: Run | None = None,
) -> Trace:
    """Trace of an objective's Hessian, the sum of all eigenvalues, with its standard error.

    Hutchinson averages v^T H v over random signs v; Hutch++ uses a third of the probes to find
    the leading eigenvectors, and computes the trace of their space exactly.

    Cost: one Hessian product for each probe.

    Sources: Hutchinson (1989); Meyer, Musco, Musco & Woodruff (2021), Hutch++.
    """
    estimators: dict[str, Callable] = {"hutch++": hutchpp, "hutchinson": hutchinson}
    if method not in estimators:
        raise InputError(f"method must be {' or '.join(estimators)}, got {method!r}")
    objective = objective.with_run(run)
    products = Products(objective, matrix)
    if probes < 1:
        raise InputError(f"probes must be at least 1, got {probes}")
    signs = random_signs(objective, probes, objective.run.seed, "trace")
    estimates = estimators[method](products, signs).numpy()
    return Trace(estimate=estimates, **result_fields(products))
