"""Differentiable: a model run so that its loss has second derivatives.

Fused attention has none, so it is computed in its plain form here; compiled modules run as they
were written, since what a compiler makes of them can be differentiated once only.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from visprism.anatomy.forward import as_written
from visprism.errors import InputError

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
        yield


def without_second_derivative(error: RuntimeError, output: Tensor) -> InputError:
    """What to say where differentiating `output` failed: which operation it was, if known."""
    reason = str(error).strip().splitlines()[0].rstrip(".")
    own = sorted(_functions_of_its_own(output))
    named = f"; its own torch.autograd functions are {', '.join(own)}" if own else ""
    return InputError(
        f"the loss has no second derivatives ({reason}{named}); replace that operation by one "
        "that torch can differentiate twice, or choose parameters that do not lead through it"
    )


def _functions_of_its_own(output: Tensor) -> set[str]:
    """Names of the autograd functions, written in Python, that `output` was made by."""
    found, seen, left = set[str](), set(), [output.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found.add(type(node).__name__.removesuffix("Backward"))
        left += [child for child, _ in node.next_functions]
    return found
