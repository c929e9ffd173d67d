"""Cached forward passes: a pass that starts at a cut, with the tensor of an earlier pass.

Everything passes through a cut, so that operations before it need not run again: each torch
function before it that depends on the image returns a tensor of the right shape that takes no
memory, and the one at the cut returns the cached tensor. What does not depend on the image
(position tables, masks) is computed as usual. The code of the model runs from its first line,
so that this can be tried for any dissected model; its logits show whether it works.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.trace.forward import Images, forward
from visprism.anatomy.trace.operation_counter import OperationCounter, count_operations
from visprism.anatomy.trace.operations import Operation, tensors_in


@dataclass(frozen=True)
class _InPlace:
    """An operand: the operation works in place."""

    number: int


def _without_values(out: Any, operands: Sequence[Tensor]) -> Any:
    """The structure of an output, with tensors of a single value in memory."""
    if isinstance(out, Tensor):
        same = next((i for i, t in enumerate(operands) if t is out), None)
        if same is not None:
            return _InPlace(same)
        return torch.zeros((), dtype=out.dtype, device=out.device).expand(out.shape)
    if isinstance(out, tuple | list):
        return type(out)([_without_values(part, operands) for part in out])
    return out


def _dummy(structure: Any, operands: Sequence[Tensor]) -> Any:
    """An output of this structure; an in-place operation gives its operand."""
    if isinstance(structure, _InPlace):
        return operands[structure.number]
    if isinstance(structure, tuple | list):
        return type(structure)([_dummy(part, operands) for part in structure])
    return structure.expand_as(structure) if isinstance(structure, Tensor) else structure


@dataclass
class Recording:
    """The logits of a forward pass, and its tensors at some cuts."""

    logits: Tensor
    values: dict[int, Tensor]  # by node
    # Name and output, without the numbers, of each torch function that worked on the image.
    calls: dict[int, tuple[str, Any]]


class _Recorder(OperationCounter):
    """Records the operations on the image, and the tensors of some."""

    def __init__(self, anatomy: Anatomy, cuts: Iterable[int]) -> None:
        super().__init__()
        nodes = anatomy.graph.nodes
        self.wanted = {nodes[i].call: i for i in cuts}
        self.on_images = {node.call for node in nodes}
        self.recording = Recording(torch.empty(0), {}, {})

    def after(self, operation: Operation) -> Any:
        """Record the operation."""
        number, out = operation.number, operation.out
        with torch._C.DisableTorchFunction():
            if number in self.on_images:
                structure = _without_values(out, operation.operands)
                self.recording.calls[number] = operation.name, structure
            if number in self.wanted:
                values = operation.made[0].detach().clone()
                self.recording.values[self.wanted[number]] = values
        return out


class _PartialForward(OperationCounter):
    """Executes only what follows a cut: before it dummy outputs, at it a given tensor."""

    def __init__(self, calls: Mapping[int, tuple[str, Any]], cut: int, value: Tensor) -> None:
        super().__init__()
        self.calls, self.cut, self.value = calls, cut, value

    def substitute(
        self, number: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """A dummy output before the cut and the tensor at it; what is no image is computed."""
        recorded, structure = self.calls.get(number, ("", None))
        if number > self.cut or name != recorded:  # or has no number: it gives no tensor
            return None
        with torch._C.DisableTorchFunction():
            operands = tensors_in([args, kwargs])
            out = _dummy(structure, operands)
            if number < self.cut:
                return (out,)
            # A later operation may change it in place, and another pass may begin with it.
            value = self.value.clone()
            held = operands[0] if name == "__setitem__" else out
            if any(held is t for t in operands):  # in place: others hold this very tensor
                held.data = value
                return (out,)
            return (value,)


_TOLERANCE = 1e-5  # of the largest logit; kernels may add in another order


def cache_cuts(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> Recording:
    """Run the model and cache the tensors of the nodes `cuts`, which are after the image.

    Costs a forward pass and the memory of those tensors.
    """
    recorder = _Recorder(anatomy, cuts)
    with count_operations(anatomy.model, recorder, anatomy.graph.caches):
        recorder.recording.logits = forward(anatomy.model, images)
    return recorder.recording


@contextmanager
def forward_from_cut(
    anatomy: Anatomy, recording: Recording, cut: int, value: Tensor | None = None
) -> Iterator[None]:
    """Inside, the model begins at the cut, of the same images as the recording's."""
    start = recording.values[cut] if value is None else value.to(recording.values[cut].device)
    partial = _PartialForward(recording.calls, anatomy.graph.nodes[cut].call, start)
    with count_operations(anatomy.model, partial, anatomy.graph.caches):
        yield


def can_start_at(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> set[int]:
    """The cuts from which the model gives the logits of a whole pass, to 1e-5 of the largest.

    Costs a forward pass, and for each cut the part of one behind it.
    """
    cuts = [i for i in cuts if i > 0 and anatomy.graph.nodes[i].call >= 0]
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
