"""Products: the Hessian and the Gauss-Newton matrix of an objective, times vectors.

The forward pass and the gradient's graph are made once for each batch and kept for all products
while memory allows; a product is then one backward pass through both.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import grad
from torch.autograd.graph import saved_tensors_hooks

from visprism.core.devices import free_bytes
from visprism.core.errors import InputError
from visprism.measure.loss.batch_graph import Graph
from visprism.measure.loss.double_backward import (
    check_twice,
    without_second_derivative,
)
from visprism.measure.loss.objective import Objective

Matrix = Literal["hessian", "gauss-newton"]
Linear = Callable[[list[Tensor]], Any]  # v -> A v of one batch's sum of losses

_SHARE = 0.4  # of the free memory, that graphs may hold


@dataclass
class Products:
    """v -> A v, with A the Hessian or the Gauss-Newton matrix of NLL + L2, where the model is.

    The Hessian's product is exact up to rounding: H v = d/dtheta <dL/dtheta, v>. The Gauss-
    Newton matrix J^T (d^2 loss / d logits^2) J leaves out the curvature of the network itself;
    it is the Fisher information matrix of a cross-entropy with softmax.

    A Hessian product costs the arithmetic of six forward passes at least, a Gauss-Newton
    product about as much; the first one makes the graphs, for three more.

    Raises:
        InputError: on the first product, if an operation cannot be differentiated twice or a
            loss is not finite.

    Sources: Pearlmutter (1994), Fast exact multiplication by the Hessian; Schraudolph (2002),
    Fast curvature matrix-vector products for second-order gradient descent.
    """

    objective: Objective
    matrix: Matrix = "hessian"
    count: int = 0  # vectors that were multiplied
    bytes_held: int = 0  # by the graphs that are kept
    _kept: list[tuple[Linear, Graph]] = field(default_factory=list, repr=False)
    _complete: bool = field(default=False, repr=False)  # whether all batches are kept

    def __post_init__(self) -> None:
        if self.matrix not in _MATRICES:
            raise InputError(f"matrix is {self.matrix!r}; wants one of {', '.join(_MATRICES)}")

    def __call__(self, vectors: Float[Tensor, "1 s p"]) -> Float[Tensor, "1 s p"]:
        """A times each row, as `visprism.linalg` asks for it."""
        rows = vectors[0]
        parts = [list(self.objective.unflatten(row).values()) for row in rows]
        totals, examples = torch.zeros_like(rows), 0  # what a process without a batch adds
        for multiply, graph in self._batches():
            for total, part in zip(totals, parts, strict=True):
                total += torch.cat([piece.flatten() for piece in multiply(part)])
            examples += graph.examples
        self.count += len(rows)
        means = self.objective.mean_of(totals, examples)
        if self.objective.weight_decay:
            means.addcmul_(self.objective.decay, rows)
        return means[None]

    @property
    def seen(self) -> tuple[float, int]:
        """NLL and number of examples, after a first product."""
        sums = torch.zeros(2, dtype=torch.float64)  # also of a process without a batch
        for _, graph in self._batches():
            sums += torch.tensor([float(graph.loss.detach()), graph.examples], dtype=sums.dtype)
        loss, examples = self.objective.add_up(sums).tolist()
        return loss / examples, int(examples)

    def _batches(self) -> Iterator[tuple[Linear, Graph]]:
        """Each batch's product; what is kept does not have to be made again."""
        yield from self._kept
        if self._complete:
            return
        make = _MATRICES[self.matrix]
        room = _SHARE * free_bytes(self.objective.compute.torch_device)
        graphs = self.objective.graphs(skip=len(self._kept))
        first_pass, held = not self._kept, _Held()
        while True:
            with saved_tensors_hooks(held.note, lambda tensor: tensor):
                graph = next(graphs, None)
                if graph is None:
                    break
                made = make(graph), graph
            yield made
            if first_pass and held.bytes < room:
                self._kept.append(made)
                self.bytes_held = held.bytes
            else:
                first_pass = False
        self._complete = first_pass


class _Held:
    """Counts the memory of the tensors that autograd saves."""

    def __init__(self) -> None:
        self.bytes = 0
        self._seen: set[int] = set()

    def note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


def _hessian(graph: Graph) -> Linear:
    gradient = _differentiated(graph.loss, graph.leaves)
    chosen = [i for i, g in enumerate(gradient) if g.requires_grad]

    def multiply(v: list[Tensor]) -> Any:  # noqa: ANN401
        if not chosen:  # the loss is linear in the parameters
            return [torch.zeros_like(leaf) for leaf in graph.leaves]
        outputs = [gradient[i] for i in chosen]
        return _again(outputs, graph.leaves, [v[i] for i in chosen], graph.loss)

    return multiply


def _gauss_newton(graph: Graph) -> Linear:
    of_loss = _differentiated(graph.loss, [graph.logits])[0]
    ones = torch.zeros_like(graph.logits, requires_grad=True)
    with torch.enable_grad():  # a linear function of `ones`, whose derivative is J
        transposed = grad(
            graph.logits, graph.leaves, ones, create_graph=True, materialize_grads=True
        )
    chosen = [i for i, g in enumerate(transposed) if g.requires_grad]

    def multiply(v: list[Tensor]) -> Any:  # noqa: ANN401
        outputs, weights = [transposed[i] for i in chosen], [v[i] for i in chosen]
        (of_logits,) = _again(outputs, [ones], weights, graph.loss)
        (weighted,) = _again([of_loss], [graph.logits], [of_logits], graph.loss)
        return _again([graph.logits], graph.leaves, [weighted], graph.loss)

    return multiply


def _differentiated(loss: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        gradient = grad(loss, inputs, create_graph=True, materialize_grads=True)
    check_twice(gradient, loss)
    return gradient


def _again(
    outputs: list[Tensor], inputs: list[Tensor], weights: list[Tensor], loss: Tensor
) -> tuple[Tensor, ...]:
    try:
        return grad(outputs, inputs, weights, retain_graph=True, materialize_grads=True)
    except RuntimeError as error:
        raise without_second_derivative(error, loss) from error


_MATRICES = {"hessian": _hessian, "gauss-newton": _gauss_newton}
