"""Skipping: torch functions of a forward pass that are recorded, or not computed at all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from visprism.anatomy.trace.forward import as_written
from visprism.anatomy.trace.operations import function_name, tensors_in
from visprism.core.errors import InputError


@dataclass(frozen=True)
class _Like:
    """What is known of a tensor that is not kept."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> Tensor:
        """A tensor like it, all of whose numbers are one and the same."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape)


@dataclass(frozen=True)
class _Operand:
    """A tensor that came in: the operation works in place."""

    number: int


def output_spec(out: Any, operands: Sequence[Tensor]) -> Any:  # noqa: ANN401 (any nesting of tensors)
    """An output without its numbers."""
    if isinstance(out, Tensor):
        same = next((i for i, t in enumerate(operands) if t is out), None)
        like = _Like(out.shape, out.dtype, out.device)
        return like if same is None else _Operand(same)
    if isinstance(out, tuple | list):
        return type(out)([output_spec(part, operands) for part in out])
    return out


def filled(gist: Any, operands: Sequence[Tensor]) -> Any:  # noqa: ANN401
    """An output like the one that the gist was taken of."""
    if isinstance(gist, _Like):
        return gist.empty()
    if isinstance(gist, _Operand):
        return operands[gist.number]
    if isinstance(gist, tuple | list):
        return type(gist)([filled(part, operands) for part in gist])
    return gist


class _Numbering(TorchFunctionMode):
    """Numbers the torch functions of a forward pass as the trace did."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = None  # of the next call; None: no forward pass is under way

    def begin(self, *_: Any) -> None:  # noqa: ANN401
        """A forward pass begins."""
        self.number = 0

    def end(self, *_: Any) -> None:  # noqa: ANN401
        """A forward pass has ended, or failed."""
        self.number = None


class Recorder(_Numbering):
    """Tells of each torch function that gives a tensor."""

    def __init__(self, tell: Callable[[int, str, list[Tensor], Any], None]) -> None:
        super().__init__()
        self.tell = tell

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        out = func(*args, **(kwargs or {}))
        name = function_name(func)
        if self.number is not None and (name == "__setitem__" or tensors_in(out)):
            with torch._C.DisableTorchFunction():
                self.tell(self.number, name, tensors_in([args, kwargs]), out)
            self.number += 1
        return out


class PartialForward(_Numbering):
    """Gives stand-ins before a cut, and a tensor at it."""

    def __init__(self, calls: Sequence[tuple[str, bool, Any]], cut: int, value: Tensor) -> None:
        super().__init__()
        self.calls, self.cut, self.value = calls, cut, value

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        number = self.number
        if number is None or number > self.cut:
            return func(*args, **(kwargs or {}))
        name = function_name(func)
        was, on_images, gist = self.calls[number]
        if name != was or not on_images:
            out = func(*args, **(kwargs or {}))
            if name != "__setitem__" and not tensors_in(out):
                return out
            if name != was:
                raise InputError(
                    f"operation {number} of this pass is {name}, but was {was} when it was "
                    "recorded; resume with the images of the recording"
                )
            self.number = number + 1
            return out
        self.number = number + 1
        operands = tensors_in([args, kwargs])
        with torch._C.DisableTorchFunction():
            return self._instead(number, name, gist, operands)

    def _instead(self, number: int, name: str, gist: Any, operands: list[Tensor]) -> Any:  # noqa: ANN401
        if number < self.cut:
            return filled(gist, operands)
        # A later operation may change it in place, and another pass may begin with it.
        value = self.value.clone()
        held = operands[0] if name == "__setitem__" else filled(gist, operands)
        if any(held is t for t in operands):  # in place: others hold this very tensor
            held.data = value
            return None if name == "__setitem__" else held
        return value


@contextmanager
def numbered(model: nn.Module, mode: _Numbering) -> Iterator[None]:
    """Inside, the mode is on, and hears where each forward pass begins and ends."""
    with as_written(), ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(mode.begin).remove)
        stack.callback(model.register_forward_hook(mode.end, always_call=True).remove)
        stack.enter_context(mode)
        yield
