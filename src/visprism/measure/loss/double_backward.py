"""Double backward: a model runs so that its loss has second derivatives.

Fused attention has none, so attention is computed in its explicit form here. Compiled modules
run as they were written, since compiled code can be differentiated only once; activations that
torch differentiates only once are rewritten.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError
from visprism.measure.loss.batch_norm import BatchNorm
from visprism.measure.loss.pointwise import TwiceDifferentiable


@contextmanager
def differentiable(model: nn.Module, batch_norm: BatchNorm = "frozen") -> Iterator[None]:
    """Inside, logits can be differentiated twice; on exit the model is restored.

    Args:
        model: the model that runs inside.
        batch_norm: "batch" normalizes by the statistics of each batch.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    fastpath = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(as_written())
        stack.callback(torch.backends.mha.set_fastpath_enabled, fastpath)
        torch.backends.mha.set_fastpath_enabled(False)
        if batch_norm == "batch":
            for norm in norms:
                stack.callback(setattr, norm, "training", norm.training)
                norm.training = True
        stack.enter_context(torch.enable_grad())
        stack.enter_context(TwiceDifferentiable())
        yield


def check_twice(gradient: Iterable[Tensor], loss: Tensor) -> None:
    """Require a gradient that can be differentiated.

    Autograd drops branches that do not lead to the parameters, and with them the node that
    raises for an operation with a first derivative only: the result would be wrong.
    """
    if any(node.name().endswith("Error") for node in _nodes(gradient)):
        raise without_second_derivative("an operation can be differentiated only once", loss)


def without_second_derivative(reason: object, loss: Tensor) -> InputError:
    """The error for a failed second differentiation, with the operations if known."""
    nodes = _nodes([loss])
    kind = torch.autograd.function.BackwardCFunction
    custom = sorted(
        {node.name().removesuffix("Backward") for node in nodes if isinstance(node, kind)}
    )
    custom = [name for name in custom if not name.startswith("_")]
    names = f"; its torch.autograd functions are {', '.join(custom)}" if custom else ""
    first = str(reason).strip().splitlines()[0].rstrip(".")
    return InputError(
        f"the loss must have second derivatives, got none ({first}{names}). Replace that "
        "operation by one that torch can differentiate twice, or choose other parameters."
    )


def _nodes(tensors: Iterable[Tensor]) -> set[Node]:
    """All operations of the graph behind the tensors."""
    visited: set[Node] = set()
    stack = [tensor.grad_fn for tensor in tensors]
    while stack:
        node = stack.pop()
        if node is not None and node not in visited:
            visited.add(node)
            stack += [child for child, _ in node.next_functions]
    return visited
