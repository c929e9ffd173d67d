"""Density of all eigenvalues of the Hessian, and their sum."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from visprism import linalg
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Matrix, Products, random_signs, result_fields
from visprism.results.loss import SpectralDensity, Trace


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

    Cost: runs x steps Hessian products, those of all runs together, and memory for as many
    vectors.

    Args:
        objective: the function that is differentiated.
        runs: independent start vectors; their spread gives the standard error, from 3 on.
        steps: Lanczos steps of each; moments up to 2 steps - 1 are exact for its start vector.
        matrix: "hessian" or "gauss-newton".
        run: seed, progress, provenance and deadline; by default that of the objective.

    Raises:
        InputError: as `top_eigenpairs`; if runs is below 1, or steps not in 1 ... P.
        TimeBudgetError: after the deadline of the run.

    Sources: Ubaru, Chen & Saad (2017), Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature; Ghorbani, Krishnan & Xiao (2019), An investigation into neural net optimization.
    """
    if runs < 1:
        raise InputError(f"runs must be at least 1, got {runs}")
    objective = objective.with_run(run)
    products = Products(objective, matrix)
    signs = random_signs(objective, runs, objective.run.seed, "density")
    nodes = linalg.quadrature(products, signs, steps=steps, run=objective.run)
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

    Raises:
        InputError: as `top_eigenpairs`; if there are too few probes, or the method is unknown.
        TimeBudgetError: after the deadline of the run.

    Sources: Hutchinson (1989); Meyer, Musco, Musco & Woodruff (2021), Hutch++.
    """
    estimators: dict[str, Callable] = {
        "hutch++": linalg.hutchpp,
        "hutchinson": linalg.hutchinson,
    }
    if method not in estimators:
        raise InputError(f"method must be {' or '.join(estimators)}, got {method!r}")
    objective = objective.with_run(run)
    products = Products(objective, matrix)
    if probes < 1:
        raise InputError(f"probes must be at least 1, got {probes}")
    signs = random_signs(objective, probes, objective.run.seed, "trace")
    estimates = estimators[method](products, signs)
    return Trace(estimate=estimates.values.cpu().numpy(), **result_fields(products))
