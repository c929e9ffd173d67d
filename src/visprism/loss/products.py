"""Products: the Hessian of an objective, times vectors.

The forward pass and the graph of the gradient are built once for each batch and kept for all
products while memory allows; a product is then one backward pass through both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import grad
from torch.autograd.graph import saved_tensors_hooks

from visprism.core.memory import free_bytes
from visprism.core.run import stream
from visprism.loss.double_backward import check_twice, without_second_derivative
from visprism.loss.objective import BatchGraph, Objective

Linear = Callable[[list[Tensor]], Any]  # v -> H v of the sum of one batch's losses

_MEMORY_SHARE = 0.4  # of the free memory, for graphs


def hvp(objective: Objective, v: Float[Tensor, "*s p"]) -> Float[Tensor, "*s p"]:
    """Hessian-vector product H v, or the product with each row of v; exact up to rounding.

    For several products in succession create `Products` once, which keeps its graphs.

    Cost: the arithmetic of nine forward passes for the first vector, six for each other.

    Source: Pearlmutter (1994), Fast exact multiplication by the Hessian.
    """
    return Products(objective)(v.reshape(-1, v.shape[-1])).reshape(v.shape)


@dataclass
class Products:
    """v -> H v, with H the Hessian of NLL + L2 at the model's theta.

    The product is exact up to rounding: H v = d/dtheta <dL/dtheta, v>.

    Cost: the arithmetic of six forward passes for each vector; the first product builds the
    graphs, for three more.

    Source: Pearlmutter (1994), Fast exact multiplication by the Hessian.
    """

    objective: Objective
    count: int = 0  # vectors that were multiplied
    _kept: list[tuple[Linear, BatchGraph]] = field(default_factory=list, repr=False)
    _complete: bool = field(default=False, repr=False)  # whether all batches are kept
    _totals: tuple[float, int, int] | None = field(default=None, repr=False)

    def __call__(self, rows: Float[Tensor, "s p"]) -> Float[Tensor, "s p"]:
        """H times each row."""
        parts = [list(self.objective.unflatten(row).values()) for row in rows]
        totals = torch.zeros_like(rows)  # also of a process without a batch
        loss, examples, largest = 0.0, 0, 0
        with self.objective.run.compute.arithmetic():
            for row, multiply, graph in self._tracked(len(rows)):
                totals[row] += torch.cat([piece.flatten() for piece in multiply(parts[row])])
                if row == 0:
                    loss += 0.0 if self._totals else float(graph.loss.detach())
                    examples, largest = examples + graph.examples, max(largest, graph.examples)
        if self._totals is None:
            self._totals = loss, examples, largest
        self.count += len(rows)
        means = self.objective.mean_of(totals, examples)
        if self.objective.weight_decay:
            means.addcmul_(self.objective.decay, rows)
        return means

    @property
    def nll_and_examples(self) -> tuple[float, int]:
        """NLL and number of examples, after a first product, which has counted them."""
        if self._totals is None:
            raise RuntimeError("nll_and_examples is known after the first product")
        sums = torch.tensor(self._totals[:2], dtype=torch.float64)
        loss, examples = self.objective.add_up(sums).tolist()
        return loss / examples, int(examples)

    @property
    def batch_size(self) -> int:
        """Number of examples of the largest batch of this process, after a first product."""
        return 0 if self._totals is None else self._totals[2]

    def _tracked(self, rows: int) -> Iterator[tuple[int, Linear, BatchGraph]]:
        """Each row with each batch; with progress and deadline where there are several."""
        steps = ((row, *batch) for batch in self._batches() for row in range(rows))
        single = self._complete and len(self._kept) * rows == 1
        return steps if single else self.objective.run.track(steps, "Hessian-vector products")

    def _batches(self) -> Iterator[tuple[Linear, BatchGraph]]:
        """The product of each batch; graphs that are kept are not built again."""
        yield from self._kept
        if self._complete:
            return
        limit = _MEMORY_SHARE * free_bytes(self.objective.run.compute.torch_device)
        graphs = self.objective.graphs(skip=len(self._kept))
        first_pass, saved = not self._kept, dict[int, int]()  # bytes by storage

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            saved[storage._cdata] = storage.nbytes()  # on XLA there is no pointer to data
            # Without its graph: an operation that saves its output, such as softmax, would
            # refer to itself through it, and the graph would never be freed.
            return tensor.detach()

        while True:
            with saved_tensors_hooks(note, lambda tensor: tensor):
                graph = next(graphs, None)
                if graph is None:
                    break
                product = _hessian(graph), graph
            yield product
            if first_pass and sum(saved.values()) < limit:
                self._kept.append(product)
            else:
                first_pass = False
        self._complete = first_pass


def _hessian(graph: BatchGraph) -> Linear:
    with torch.enable_grad():
        gradient = grad(graph.loss, graph.leaves, create_graph=True, materialize_grads=True)
    check_twice(gradient, graph.loss)
    chosen = [i for i, g in enumerate(gradient) if g.requires_grad]

    def multiply(v: list[Tensor]) -> Any:
        if not chosen:  # the loss is linear in the parameters
            return [torch.zeros_like(leaf) for leaf in graph.leaves]
        outputs, weights = [gradient[i] for i in chosen], [v[i] for i in chosen]
        try:
            return grad(
                outputs, graph.leaves, weights, retain_graph=True, materialize_grads=True
            )
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise without_second_derivative(error, graph.loss) from error

    return multiply


def result_fields(products: Products) -> dict[str, Any]:
    """Size, loss and provenance of a result, after a first product."""
    objective = products.objective
    nll, examples = products.nll_and_examples
    return {
        "parameters": len(objective),
        "nll": nll,
        "l2": objective.l2(),
        "weight_decay": objective.weight_decay,
        "provenance": objective.run.measured(
            images=examples, batch_size=products.batch_size, image_shape=objective.image_shape
        ),
    }


def random_normal(objective: Objective, seed: int, *use: object) -> Float[Tensor, " p"]:
    """A standard normal vector."""
    numbers = torch.randn(len(objective), generator=stream(seed, *use))
    return numbers.to(objective.decay)


def random_signs(
    objective: Objective, count: int, seed: int, *use: object
) -> Float[Tensor, "count p"]:
    """Vectors of random signs, one per row."""
    bits = torch.randint(2, (count, len(objective)), generator=stream(seed, *use))
    return (2 * bits - 1).to(objective.decay)
