"""Density: all eigenvalues of the Hessian at once, and their sum."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from visprism import linalg
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.loss.curvature.result_fields import (
    Curvature,
    random_signs,
    result_fields,
    standard_error,
)
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Matrix, Products
from visprism.results.base import column, result_type


@result_type("spectral-density")
class SpectralDensity(Curvature):
    """Density of all eigenvalues: weights at nodes; one row per run and node."""

    run: np.ndarray = column("Run")
    node: np.ndarray = column("Eigenvalue", "", "where eigenvalues are, ascending within a run")
    weight: np.ndarray = column(
        "Share", "", "the share of all eigenvalues that it stands for; 1 in each run"
    )
    residual: np.ndarray = column("Residual", "", "an eigenvalue lies this near to the node")

    def moment(self, degree: int) -> tuple[float, float]:
        """Mean of the eigenvalues to a power, and its standard error over the runs."""
        sums = np.bincount(self.run, self.weight * self.node**degree)
        return float(sums.mean()), standard_error(sums)


@result_type("trace")
class Trace(Curvature):
    """Independent estimates of the trace; one row per estimate."""

    estimate: np.ndarray = column("Estimate")

    @property
    def mean(self) -> float:
        """The trace."""
        return float(self.estimate.mean())

    @property
    def error(self) -> float:
        """Its standard error."""
        return standard_error(self.estimate)

    def sentences(self) -> list[str]:
        """The trace, its error, and of which objective."""
        of = f"NLL + L2 (weight decay {self.weight_decay:g})" if self.weight_decay else "NLL"
        spread = f" \N{PLUS-MINUS SIGN} {self.error:.2g}" if np.isfinite(self.error) else ""
        return [
            f"the trace of the Hessian of {of} is {self.mean:.4g}{spread} (standard error), "
            f"over {self.parameters:,} parameters and {self.provenance.images} images"
        ]


def spectral_density(
    objective: Objective,
    *,
    runs: int = 4,
    steps: int = 40,
    seed: int = 0,
    matrix: Matrix = "hessian",
    provenance: Provenance | None = None,
) -> SpectralDensity:
    """Density of all eigenvalues of an objective's Hessian, by stochastic Lanczos quadrature.

    Each run starts from random signs and gives `steps` nodes with weights; the share of
    eigenvalues in an interval is the weight of its nodes, the mean of f over all eigenvalues is
    sum_i w_i f(node_i), both up to the spread of the runs. The outermost nodes are the
    outermost eigenvalues, within their residuals.

    Costs runs x steps Hessian products, all runs' together, and memory for as many vectors.

    Args:
        objective: what is differentiated.
        runs: independent starts, whose spread is the error.
        steps: of Lanczos in each; moments up to 2 steps - 1 are exact for the start.
        seed: of the starts.
        matrix: "hessian" or "gauss-newton".
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: as `top_eigenvalues`; if runs is under 1, or steps not in 1 ... P.

    Sources: Ubaru, Chen & Saad (2017), Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature; Ghorbani, Krishnan & Xiao (2019), An investigation into neural net optimization.
    """
    if runs < 1:
        raise InputError(f"runs is {runs}; wants at least 1")
    products = Products(objective, matrix)
    signs = random_signs(objective, runs, seed, "density")
    found = linalg.quadrature(products, signs, steps=steps)
    m = found.nodes.shape[1]
    return SpectralDensity(
        run=np.repeat(np.arange(runs), m),
        node=found.nodes.flatten().numpy(),
        weight=found.weights.flatten().numpy(),
        residual=found.residuals.flatten().numpy(),
        **result_fields(products, seed, provenance),
    )


def trace(
    objective: Objective,
    *,
    probes: int = 30,
    method: Literal["hutch++", "hutchinson"] = "hutch++",
    seed: int = 0,
    matrix: Matrix = "hessian",
    provenance: Provenance | None = None,
) -> Trace:
    """Trace of an objective's Hessian, the sum of all eigenvalues, with its standard error.

    Hutchinson averages v^T H v over random signs v; Hutch++ spends a third of the probes on
    finding the largest eigenvalues and takes their part exactly.

    Costs one Hessian product for each probe.

    Raises:
        InputError: as `top_eigenvalues`; if there are too few probes, or the method is unknown.

    Sources: Hutchinson (1989); Meyer, Musco, Musco & Woodruff (2021), Hutch++.
    """
    estimates: dict[str, Callable] = {
        "hutch++": linalg.hutchpp,
        "hutchinson": linalg.hutchinson,
    }
    if method not in estimates:
        raise InputError(f"method is {method!r}; wants one of {', '.join(estimates)}")
    products = Products(objective, matrix)
    signs = random_signs(objective, probes, seed, "trace")
    samples = estimates[method](products, signs)
    return Trace(
        estimate=samples.values.cpu().numpy(),
        **result_fields(products, seed, provenance),
    )
