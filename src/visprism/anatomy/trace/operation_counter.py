"""The numbering of torch functions, on which every intervention in a forward pass rests.

A torch function has a number if it returns a tensor or assigns to one (`__setitem__`). By this
one rule the trace, reads, changes, caches and partial forward passes number alike.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from visprism.anatomy.trace.forward import as_written
from visprism.anatomy.trace.operations import Operation, function_name


class OperationCounter(TorchFunctionMode):
    """Numbers the torch functions of a forward pass; subclasses act at them."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = None  # of the next operation; None: outside a forward pass

    def begin(self, _module: nn.Module, _args: Any, _kwargs: Any, /) -> None:
        """A forward pass begins."""
        self.number = 0

    def end(self, *_: Any) -> None:
        """A forward pass has ended, or failed."""
        self.number = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs, number = kwargs or {}, self.number
        if number is None:
            return func(*args, **kwargs)
        name = function_name(func)
        replaced = self.substitute(number, name, args, kwargs)
        if replaced is not None:
            self.number = number + 1
            return replaced[0]
        out = self.execute(func, args, kwargs)
        operation = Operation(number, func, name, args, kwargs, out)
        if self.number is None or not operation.made:
            return out
        operation.number, self.number = self.number, self.number + 1
        return self.after(operation)

    def substitute(
        self, number: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """The result of an operation that is not executed, or None if it is."""

    def execute(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Execute an operation."""
        return func(*args, **kwargs)

    def after(self, operation: Operation) -> Any:
        """What the model receives from an operation that was executed."""
        return operation.out


@contextmanager
def _with_buffers(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, the model has these tensors as buffers of these names, where its own lie."""
    places = {name: p.device for name, p in [*model.named_buffers(), *model.named_parameters()]}
    before = []
    try:
        for full_name, tensor in tensors.items():
            path, _, name = full_name.rpartition(".")
            buffers = model.get_submodule(path)._buffers
            before.append((buffers, dict(buffers)))
            device = places.get(full_name, next(reversed(places.values()), tensor.device))
            buffers[name] = tensor.to(device)
        yield
    finally:
        for buffers, own in reversed(before):
            buffers.clear()
            buffers.update(own)


@contextmanager
def count_operations(
    model: nn.Module, mode: OperationCounter, caches: Mapping[str, Tensor]
) -> Iterator[None]:
    """Inside, the mode is on and is informed where each forward pass begins and ends.

    The model has the `caches` of its graph as buffers: a pass that computes them would have
    other numbers.
    """
    with as_written(), _with_buffers(model, caches), ExitStack() as stack:
        first = {"with_kwargs": True, "prepend": True}  # hooks of the user are part of the pass
        stack.callback(model.register_forward_pre_hook(mode.begin, **first).remove)
        stack.callback(model.register_forward_hook(mode.end, always_call=True).remove)
        stack.enter_context(mode)
        yield


# Multiply-accumulate operations of whatever torch runs, counted below the torch functions.


def recurrence_macs(operands: Sequence[Tensor]) -> int:
    """Multiply-accumulates of an LSTM, GRU or RNN: each weight matrix once for each token."""
    tokens = operands[0].shape[:-1].numel()
    matrices = [w for w in operands if isinstance(w, nn.Parameter) and w.ndim == 2]
    return tokens * sum(w.numel() for w in matrices)


class MacCounter(TorchDispatchMode):
    """Counts the multiply-accumulates of matrix products, convolutions and attention.

    One is half of what torch's own counter calls two FLOPs; it is what the field's tables mean
    by "FLOPs" (4.1 G for ResNet-50). Elementwise operations count nothing, as there.
    """

    supports_higher_order_operators = True  # flex_attention

    def __init__(self) -> None:
        super().__init__()
        self.macs = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch would import its compiler, 4 seconds, and traces run eagerly anyway."""
        return False

    def __enter__(self) -> "MacCounter":
        super().__enter__()
        return self

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and isinstance(func, OpOverload):
            with self:  # what torch makes of other operations comes whole
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        named = _COUNTS.get(getattr(func, "__name__", ""))
        count = _COUNTS.get(getattr(func, "_overloadpacket", func), named)
        if count is not None:
            self.macs += count(*args, **kwargs, out_val=out) // 2
        return out


_ATEN = torch.ops.aten
_OF_CPU = _ATEN._scaled_dot_product_flash_attention_for_cpu


def _flops_of_attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """FLOPs of both products; heads of queries may share heads of keys."""
    rows = query.shape[:-1].numel()
    return 2 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1])


# torch 2.9 counts neither of the first two; the second exists once its module is imported.
_COUNTS = {_OF_CPU: _flops_of_attention, "flex_attention": _flops_of_attention, **flop_registry}
