"""Double backward: a model runs so that its loss has second derivatives.

Fused attention has none, so attention is computed in its explicit form here. Compiled modules
run as they were written, since compiled code can be differentiated only once. Operations whose
second derivative is wrong or missing in torch are replaced by equivalents.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError

# "frozen": the running statistics of the model. "batch": the statistics of each batch, as in
# training. "reestimated": running statistics that are computed from the images that the
# loss is measured on, for each set of weights; see `visprism.loss.points.reestimate`.
BatchNorm = Literal["frozen", "batch", "reestimated"]


def check_batch_norm(batch_norm: str, supported: Sequence[str], quantity: str) -> None:
    """Require a treatment of BatchNorm that a measurement supports."""
    if batch_norm not in supported:
        raise InputError(
            f"batch_norm must be {' or '.join(map(repr, supported))} for {quantity}, got "
            f"{batch_norm!r}"
        )


@contextmanager
def batch_statistics() -> Iterator[None]:
    """Inside, BatchNorm that has no variance within a batch is refused in one sentence."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "a batch must have more than one image for the statistics of BatchNorm, got 1. Use "
            "more images or another batch size."
        ) from error


def clear_caches(model: nn.Module) -> None:
    """Empty what modules keep until their mode is set, as LeViT its attention biases."""
    if any(type(m).train is not nn.Module.train for m in model.modules()):
        model.train(), model.eval()


@contextmanager
def differentiable(model: nn.Module, batch_norm: BatchNorm = "frozen") -> Iterator[None]:
    """Inside, logits can be differentiated twice; on exit the model is restored."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    fastpath = torch.backends.mha.get_fastpath_enabled()
    clear_caches(model)  # of other parameters
    with ExitStack() as stack:
        stack.callback(clear_caches, model)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(as_written())
        stack.callback(torch.backends.mha.set_fastpath_enabled, fastpath)
        torch.backends.mha.set_fastpath_enabled(False)
        if batch_norm == "batch":
            stack.enter_context(batch_statistics())
            for norm in norms:
                stack.callback(setattr, norm, "training", norm.training)
                norm.training = True
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_Equivalents())
        yield


def _hardsigmoid(input: Tensor, *, inplace: bool = False) -> Tensor:
    """Torch's own has no second derivative (torch 2.15)."""
    value = functional.relu6(input + 3) / 6
    return input.copy_(value) if inplace else value


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """G v / |v|; the second derivative of torch's own is wrong (torch 2.15)."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


_EQUIVALENTS = {functional.hardsigmoid: _hardsigmoid, torch._weight_norm: _weight_norm}


class _Equivalents(TorchFunctionMode):
    """Inside, operations without a correct second derivative are replaced by equivalents."""

    def __torch_function__(
        self, func: Callable, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _EQUIVALENTS.get(func, func)(*args, **(kwargs or {}))


def check_gradients(
    logits: Callable[[Mapping[str, Tensor]], Tensor], parameters: Mapping[str, Tensor]
) -> None:
    """Require a gradient with respect to every parameter on which the logits depend.

    A layer that is quantized, or runs under ``no_grad``, has none, and a Hessian without it
    would be 0 where the loss is curved. A parameter that the model doesn't use may have none:
    its derivative is 0.

    Cost: a pass forward and backward, and a forward pass for each parameter without a gradient
    until one of them changes the logits.
    """
    leaves = {n: p.detach().clone().requires_grad_() for n, p in parameters.items()}
    gradients: Iterable[Tensor | None] = [None] * len(leaves)
    try:
        values = logits(leaves)
        if values.requires_grad:
            inputs = list(leaves.values())
            gradients = torch.autograd.grad(values.sum(), inputs, allow_unused=True)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"the model must be differentiable, and torch reports: {reason}. Replace changes "
            "in place, and tensors that were made in inference mode."
        ) from error
    missing = [name for name, g in zip(leaves, gradients, strict=True) if g is None]
    moved = {name: p.detach() * 1.5 + 0.1 for name, p in parameters.items()}
    if len(missing) == len(leaves) and torch.equal(logits(moved).detach(), values.detach()):
        raise InputError(
            f"the outputs must depend on the parameters, and moving all {len(leaves)} of them "
            "changes nothing: the model computes with copies of its weights. Curvature would "
            "be 0. Choose other parameters, or a model that uses its parameters."
        )
    for name in missing:
        other = parameters[name].detach() * 1.5 + 0.1
        if not torch.equal(logits({**parameters, name: other}).detach(), values.detach()):
            raise InputError(
                f"the loss must have a gradient with respect to {name}, got none, although the "
                f"logits depend on it ({len(missing)} of {len(leaves)} parameters have none). "
                f"Part of the model is quantized or runs without gradients: use the model "
                "before quantization, without torch.no_grad, or choose other parameters."
            )


def check_twice(gradient: Iterable[Tensor], loss: Tensor) -> None:
    """Require a gradient that can be differentiated.

    Autograd drops branches that do not lead to the parameters, and with them the node that
    raises for an operation with a first derivative only: the result would be wrong.
    """
    if any(node.name().endswith("Error") for node in _nodes(gradient)):
        raise without_second_derivative("an operation can be differentiated only once", loss)


def without_second_derivative(reason: object, loss: Tensor) -> InputError:
    """The error for a failed second differentiation, with the operations if known."""
    kind = torch.autograd.function.BackwardCFunction
    custom = sorted(
        {n.name().removesuffix("Backward") for n in _nodes([loss]) if isinstance(n, kind)}
    )
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
