"""Trace: the sum of all eigenvalues of an operator, from products with random vectors."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.linalg.krylov import Product


@dataclass(frozen=True)
class TraceEstimates:
    """Independent estimates of one trace."""

    values: Float[Tensor, " n"]

    @property
    def mean(self) -> float:
        """The mean of the estimates."""
        return float(self.values.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite for a single estimate."""
        n = len(self.values)
        return float(self.values.std() / n**0.5) if n > 1 else float("inf")


def hutchinson(product: Product, probes: Float[Tensor, "n p"]) -> TraceEstimates:
    """Unbiased estimates v^T A v of the trace, one for each probe of random signs.

    Costs one product for each probe.

    Source: Hutchinson (1989), A stochastic estimator of the trace of the influence matrix.
    """
    products = product(probes[None])[0]
    return TraceEstimates((probes.double() * products.double()).sum(1))


def hutchpp(product: Product, probes: Float[Tensor, "n p"]) -> TraceEstimates:
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
    basis = torch.linalg.qr(product(sketch[None])[0].mT).Q.mT  # (third, p)
    exact = (basis.double() * product(basis[None])[0].double()).sum()
    rest = rest - (rest @ basis.mT) @ basis
    products = product(rest[None])[0]
    return TraceEstimates(exact + (rest.double() * products.double()).sum(1))
