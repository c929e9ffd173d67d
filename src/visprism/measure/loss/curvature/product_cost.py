"""Cost: what products with an objective's second derivatives take, before many are made."""

import time
from dataclasses import dataclass

from visprism.measure.loss.curvature.result_fields import random_normal
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Matrix, Products


@dataclass(frozen=True)
class ProductCost:
    """Time and memory of products, as they were measured."""

    first: float  # seconds of the first, which makes the graphs
    each: float  # seconds of any other
    bytes: int  # that the kept graphs hold

    def seconds(self, products: int) -> float:
        """What so many products take, in seconds."""
        return self.first + self.each * max(0, products - 1)


def product_cost(objective: Objective, *, matrix: Matrix = "hessian") -> ProductCost:
    """What a product with an objective's Hessian costs, from making two.

    `top_eigenvalues` takes 10 to 30 products for five values, `spectral_density` runs x steps,
    `trace` one per probe.

    Args:
        objective: what is differentiated.
        matrix: "hessian" or "gauss-newton".

    Raises:
        InputError: if the loss has no second derivatives or is not finite.

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
        begun = time.perf_counter()
        float(products(vector[None, None]).sum())  # a number, so that a GPU has finished
        seconds.append(time.perf_counter() - begun)
    return ProductCost(seconds[0], seconds[1], products.bytes_held)
