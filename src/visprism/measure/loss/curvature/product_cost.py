"""Time and memory of Hessian-vector products, measured before many of them are made."""

import time
from collections.abc import Sized
from dataclasses import dataclass

from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Matrix, Products, random_normal


@dataclass(frozen=True)
class ProductCost:
    """Measured time and memory of products."""

    first: float  # seconds of the first, which builds the graphs
    per_product: float  # seconds of any other
    bytes: int  # held by the graphs that are kept

    def seconds(self, products: int) -> float:
        """Expected seconds of a number of products."""
        return self.first + self.per_product * max(0, products - 1)


def product_cost(objective: Objective, *, matrix: Matrix = "hessian") -> ProductCost:
    """Time and memory of a product with an objective's Hessian.

    `top_eigenvalues` takes 15 to 35 products for five values, `spectral_density` runs x steps,
    `trace` one per probe.

    Cost: two products.

    Args:
        objective: the function that is differentiated.
        matrix: "hessian" or "gauss-newton".

    Example:
        >>> import torch
        >>> batch = torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.long)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2)).eval()
        >>> cost = product_cost(Objective(model, [batch]))
        >>> cost.seconds(20) > cost.seconds(10) > 0
        True
    """
    products = Products(objective, matrix)
    (vector,) = random_normal(objective, 1, 0, "cost")
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        float(products(vector[None, None]).sum())  # a number, so that a GPU has finished
        seconds.append(time.perf_counter() - begin)
    return ProductCost(seconds[0], seconds[1], products.bytes_held)


def seconds_per_product(objective: Objective) -> float:
    """Seconds of a Hessian-vector product over the data of an objective.

    Measured on the first batch, and scaled to the number of batches where that is known.

    Cost: two products over one batch.
    """
    first = next(iter(objective.batches))
    one = objective.with_batches([first], shared=False)
    number = len(objective.batches) if isinstance(objective.batches, Sized) else 1
    return product_cost(one).per_product * number
