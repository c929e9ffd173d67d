"""Operations of a forward pass that are recorded, or not computed at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from visprism.anatomy.trace.operation_counter import Operation, OperationCounter
from visprism.anatomy.trace.operations import tensors_in
from visprism.core.errors import InputError


@dataclass(frozen=True)
class _TensorSpec:
    """Shape, type and device of a tensor."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> Tensor:
        """A tensor of this specification with a single value in memory."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape)


@dataclass(frozen=True)
class _InPlace:
    """An operand: the operation works in place."""

    number: int


def output_spec(out: Any, operands: Sequence[Tensor]) -> Any:
    """The structure of an output without its values."""
    if isinstance(out, Tensor):
        same = next((i for i, t in enumerate(operands) if t is out), None)
        spec = _TensorSpec(out.shape, out.dtype, out.device)
        return spec if same is None else _InPlace(same)
    if isinstance(out, tuple | list):
        return type(out)([output_spec(part, operands) for part in out])
    return out


def dummy_output(spec: Any, operands: Sequence[Tensor]) -> Any:
    """An output of this specification that takes no memory."""
    if isinstance(spec, _TensorSpec):
        return spec.empty()
    if isinstance(spec, _InPlace):
        return operands[spec.number]
    if isinstance(spec, tuple | list):
        return type(spec)([dummy_output(part, operands) for part in spec])
    return spec


Observer = Callable[[int, str, list[Tensor], Any], None]


class Recorder(OperationCounter):
    """Reports each operation to an observer: number, name, operands, result."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer

    def after(self, operation: Operation) -> Any:
        """Report the operation."""
        operands = tensors_in([operation.args, operation.kwargs])
        with torch._C.DisableTorchFunction():
            self.observer(operation.number, operation.name, operands, operation.out)
        return operation.out


class PartialForward(OperationCounter):
    """Executes only what follows a cut: before it dummy outputs, at it a given tensor."""

    def __init__(self, calls: Sequence[tuple[str, bool, Any]], cut: int, value: Tensor) -> None:
        super().__init__()
        self.calls, self.cut, self.value = calls, cut, value

    def substitute(
        self, number: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """A dummy output before the cut and the tensor at it; what is no image is computed."""
        if number > self.cut:
            return None
        recorded, on_images, spec = self.calls[number]
        if name != recorded or not on_images:
            return None
        operands = tensors_in([args, kwargs])
        with torch._C.DisableTorchFunction():
            return (self._instead(number, name, spec, operands),)

    def after(self, operation: Operation) -> Any:
        """Check that the operation is the recorded one."""
        if operation.number <= self.cut:
            recorded, _, _ = self.calls[operation.number]
            if operation.name != recorded:
                raise InputError(
                    f"operation {operation.number} of a forward pass must be {recorded}, as "
                    f"when the cuts were cached, got {operation.name}. Use the same images."
                )
        return operation.out

    def _instead(self, number: int, name: str, spec: Any, operands: list[Tensor]) -> Any:
        if number < self.cut:
            return dummy_output(spec, operands)
        # A later operation may change it in place, and another pass may begin with it.
        value = self.value.clone()
        held = operands[0] if name == "__setitem__" else dummy_output(spec, operands)
        if any(held is t for t in operands):  # in place: others hold this very tensor
            held.data = value
            return None if name == "__setitem__" else held
        return value
