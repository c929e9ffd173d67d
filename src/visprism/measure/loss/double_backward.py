"""Differentiable: a model run so that its loss has second derivatives.

Fused attention has none, so it is computed in its plain form here; compiled modules run as they
were written, since what a compiler makes of them can be differentiated once only; and so are
activations that torch differentiates once.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError
from visprism.measure.loss.pointwise import TwiceDifferentiable

BatchNorm = Literal["frozen", "batch"]


@contextmanager
def differentiable(model: nn.Module, batch_norm: BatchNorm = "frozen") -> Iterator[None]:
    """Inside, what the model gives can be differentiated twice; afterwards it is as it was.

    Args:
        model: that will run.
        batch_norm: "batch" normalises by the statistics of each batch.
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
    """The gradient can be differentiated.

    Autograd leaves out what does not lead to the parameters, and with it the node that would
    tell of an operation with a first derivative only: the result would be wrong in silence.

    Raises:
        InputError: if the way from the parameters to the gradient is cut by such an operation.
    """
    if any(node.name().endswith("Error") for node in _nodes(gradient)):
        raise without_second_derivative("an operation can be differentiated only once", loss)


def without_second_derivative(reason: object, loss: Tensor) -> InputError:
    """What to say where differentiating failed: which operation it was, if known."""
    nodes = _nodes([loss])
    kind = torch.autograd.function.BackwardCFunction
    own = sorted(
        {node.name().removesuffix("Backward") for node in nodes if isinstance(node, kind)}
    )
    own = [name for name in own if not name.startswith("_")]
    named = f"; its own torch.autograd functions are {', '.join(own)}" if own else ""
    first = str(reason).strip().splitlines()[0].rstrip(".")
    return InputError(
        f"the loss has no second derivatives ({first}{named}); replace that operation by one "
        "that torch can differentiate twice, or choose parameters that do not lead through it"
    )


def _nodes(tensors: Iterable[Tensor]) -> set[Node]:
    """All operations that the tensors were made by."""
    seen: set[Node] = set()
    left = [tensor.grad_fn for tensor in tensors]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [child for child, _ in node.next_functions]
    return seen
