"""Trace: the sum of all eigenvalues of an operator, from products with random vectors."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.linalg.krylov import Product


@dataclass(frozen=True)
class Samples:
    """Independent estimates of one number; their mean is the estimate."""

    values: Float[Tensor, " n"]

    @property
    def mean(self) -> float:
        """The estimate."""
        return float(self.values.mean())

    @property
    def error(self) -> float:
        """Its standard error; infinite for a single sample."""
        n = len(self.values)
        return float(self.values.std() / n**0.5) if n > 1 else float("inf")


def hutchinson(product: Product, probes: Float[Tensor, "n p"]) -> Samples:
    """Unbiased estimates v^T A v of the trace, one for each probe of random signs.

    Costs one product for each probe.

    Source: Hutchinson (1989), A stochastic estimator of the trace of the influence matrix.
    """
    images = product(probes[None])[0]
    return Samples((probes.double() * images.double()).sum(1))


def hutchpp(product: Product, probes: Float[Tensor, "n p"]) -> Samples:
    """Unbiased estimates of the trace whose error falls like 1/n instead of 1/sqrt(n).

    A third of the probes finds a space that holds the largest eigenvalues; their part of the
    trace is computed exactly, the rest is estimated from the other probes.

    Costs one product for each of n probes, a third of them for the space's own trace.

    Raises:
        InputError: if there are fewer than 3 probes.

    Source: Meyer, Musco, Musco & Woodruff (2021), Hutch++: optimal stochastic trace estimation.
    """
    third = len(probes) // 3
    if third < 1:
        raise InputError(f"Hutch++ needs at least 3 probes, got {len(probes)}")
    sketch, rest = probes[:third], probes[2 * third :]
    basis = torch.linalg.qr(product(sketch[None])[0].mT).Q.mT  # (third, p)
    exact = (basis.double() * product(basis[None])[0].double()).sum()
    rest = rest - (rest @ basis.mT) @ basis
    images = product(rest[None])[0]
    return Samples(exact + (rest.double() * images.double()).sum(1))
