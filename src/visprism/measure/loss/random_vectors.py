"""Random vectors with the shape, type and device of an objective's parameters."""

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.rng import stream
from visprism.measure.loss.objective import Objective


def random_normal(
    objective: Objective, count: int, seed: int, *use: object
) -> Float[Tensor, "count p"]:
    """Standard normal vectors, one per row."""
    numbers = torch.randn(count, len(objective), generator=stream(seed, *use))
    return numbers.to(objective.decay)


def random_signs(
    objective: Objective, count: int, seed: int, *use: object
) -> Float[Tensor, "count p"]:
    """Vectors of random signs, one per row."""
    bits = torch.randint(2, (count, len(objective)), generator=stream(seed, *use))
    return (2 * bits - 1).to(objective.decay)
