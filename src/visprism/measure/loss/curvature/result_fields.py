"""Curvature: what every measurement of an objective's second derivatives has in common."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.processes import world_size
from visprism.core.provenance import Provenance
from visprism.core.rng import stream
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Products
from visprism.results.base import Result, result_type, scalar


@result_type("curvature")
class Curvature(Result):
    """A measurement of the matrix of second derivatives, and where it was taken."""

    parameters: int = scalar("Parameters", "", "P, the size of the matrix")
    nll: float = scalar("Nll", "", "mean loss of the examples, in nats")
    l2: float = scalar("L2")
    weight_decay: float = scalar("Weight decay")


def result_fields(products: Products, seed: int, known: Provenance | None) -> dict[str, Any]:
    """What holds for all rows of a result, and its provenance, completed by what was seen."""
    objective = products.objective
    nll, examples = products.seen
    return {
        "parameters": len(objective),
        "nll": nll,
        "l2": objective.l2(),
        "weight_decay": objective.weight_decay,
        "provenance": replace(
            known or Provenance(),
            images=examples,
            device=objective.compute.device,
            processes=world_size(),
            seed=seed,
        ),
    }


def random_normal(
    objective: Objective, count: int, seed: int, *use: object
) -> Float[Tensor, "count p"]:
    """Random normal vectors like theta."""
    numbers = torch.randn(count, len(objective), generator=stream(seed, *use))
    return numbers.to(objective.decay)


def random_signs(
    objective: Objective, count: int, seed: int, *use: object
) -> Float[Tensor, "count p"]:
    """Vectors of random signs like theta."""
    bits = torch.randint(2, (count, len(objective)), generator=stream(seed, *use))
    return (2 * bits - 1).to(objective.decay)


def standard_error(values: np.ndarray) -> float:
    """Of the mean of independent values; infinite for a single one."""
    n = len(values)
    return float(values.std(ddof=1) / n**0.5) if n > 1 else float("inf")
