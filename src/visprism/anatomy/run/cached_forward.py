"""Cached forward passes: a pass that starts at a cut, with the tensor of an earlier pass.

Everything passes through a cut, so that operations before it need not run again: each torch
function before it that depends on the image returns a tensor of the right shape that takes no
memory, and the one at the cut returns the cached tensor. What does not depend on the image
(position tables, masks) is computed as usual. The code of the model runs from its first line,
so that this can be tried for any dissected model; its logits show whether it works.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.run.interception import is_intercepted
from visprism.anatomy.trace.forward import Images, forward
from visprism.anatomy.trace.operation_counter import (
    Operation,
    OperationCounter,
    count_operations,
)
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


_TOLERANCE = 1e-5  # of the largest logit; kernels may add in another order


@dataclass
class Recording:
    """The logits of a forward pass, and its tensors at some cuts."""

    logits: Tensor
    values: dict[int, Tensor]  # by node
    # For each torch function that gave a tensor: its name, whether it worked on the image, and
    # what it gave, without the numbers.
    calls: list[tuple[str, bool, Any]] = field(default_factory=list, repr=False)


def cache_cuts(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> Recording:
    """Run the model and cache the tensors of the nodes `cuts`, which are after the image.

    Costs a forward pass and the memory of those tensors.
    """
    recording = Recording(torch.empty(0), {})
    nodes = anatomy.graph.nodes
    wanted = {nodes[i].call: i for i in cuts}
    on_images = {node.call for node in nodes}

    def written(number: int, name: str, operands: list[Tensor], out: Any) -> None:
        recording.calls.append((name, number in on_images, output_spec(out, operands)))
        if number in wanted:
            tensor = operands[0] if name == "__setitem__" else out
            recording.values[wanted[number]] = tensor.detach().clone()

    with count_operations(anatomy.model, Recorder(written), anatomy.graph.caches):
        recording.logits = forward(anatomy.model, images)
    return recording


@contextmanager
def forward_from_cut(
    anatomy: Anatomy, recording: Recording, cut: int, value: Tensor | None = None
) -> Iterator[None]:
    """Inside, the model begins at the cut, of the same images as the recording's."""
    start = recording.values[cut] if value is None else value.to(recording.values[cut].device)
    partial = PartialForward(recording.calls, anatomy.graph.nodes[cut].call, start)
    with count_operations(anatomy.model, partial, anatomy.graph.caches):
        yield


def can_start_at(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> set[int]:
    """The cuts from which the model gives the logits of a whole pass, to 1e-5 of the largest.

    Costs a forward pass, and for each cut the part of one behind it.
    """
    cuts = [i for i in cuts if i > 0 and anatomy.graph.nodes[i].call >= 0]
    if is_intercepted(anatomy.model):  # whose operations are numbered already
        return set()
    recording = cache_cuts(anatomy, images, cuts)
    reach = _TOLERANCE * recording.logits.abs().max()
    exact_cuts = set()
    for cut in cuts:
        try:
            with forward_from_cut(anatomy, recording, cut):
                logits = forward(anatomy.model, images)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            continue  # any error of the model's code
        if logits.shape == recording.logits.shape and bool(
            (logits - recording.logits).abs().max() <= reach
        ):
            exact_cuts.add(cut)
    return exact_cuts
