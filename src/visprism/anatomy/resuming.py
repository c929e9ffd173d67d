"""Resuming: a forward pass that begins at a cut, with the tensor that another pass left there.

A cut is a tensor that everything passes through, so what lies before it need not run again:
each torch function before it that works on the image gives an empty tensor of the right shape
instead, without memory of its own, and the one at the cut gives the remembered tensor. What
does not depend on the image (tables of positions, masks) is computed as ever. The model's own
code runs from its first line, so any model that can be dissected can be tried; whether it
resumes is checked by its logits, not assumed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from visprism.anatomy.acting import under_way
from visprism.anatomy.blocks import Anatomy
from visprism.anatomy.forward import Images, as_written, batch_size, forward, pixels
from visprism.anatomy.operations import function_name, tensors_in
from visprism.errors import InputError

_TOLERANCE = 1e-5  # of the largest logit; kernels may add in another order


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


@dataclass
class Recording:
    """What one forward pass left: its logits, and the tensors at some cuts."""

    logits: Tensor
    values: dict[int, Tensor]  # by node
    # Of each torch function that gave a tensor its name, whether it worked on the image, and
    # what it gave, without the numbers.
    calls: list[tuple[str, bool, Any]] = field(default_factory=list, repr=False)


def record(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> Recording:
    """Run the model, and remember the tensors that the nodes `cuts` make.

    Costs a forward pass and the memory of those tensors.
    """
    found = Recording(torch.empty(0), {})
    nodes = anatomy.graph.nodes
    wanted = {nodes[i].call: i for i in cuts if i > 0}
    on_images = {node.call for node in nodes}
    if 0 in cuts:
        found.values[0] = pixels(images).clone()

    def written(number: int, name: str, operands: list[Tensor], out: Any) -> None:  # noqa: ANN401
        found.calls.append((name, number in on_images, _gist(out, operands)))
        if number in wanted:
            tensor = operands[0] if name == "__setitem__" else out
            found.values[wanted[number]] = tensor.detach().clone()

    with _running(anatomy.model, _Recorder(written)):
        found.logits = forward(anatomy.model, images)
    return found


@contextmanager
def resumed(
    anatomy: Anatomy, recording: Recording, cut: int, value: Tensor | None = None
) -> Iterator[None]:
    """Inside, the model begins at the cut, of the same images as the recording's.

    Args:
        anatomy: of the model that will run.
        recording: of a pass over the images that it will run on.
        cut: node of the graph.
        value: to begin with; by default the one that was there.
    """
    start = recording.values[cut] if value is None else value
    if cut == 0:
        raise InputError("a pass that begins at the image is a pass as ever; call the model")
    number = anatomy.graph.nodes[cut].call
    with _running(anatomy.model, _Resumer(recording.calls, number, start)):
        yield


def resumable(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> set[int]:
    """The cuts from which the model gives the logits of a whole pass, to 1e-5 of the largest.

    Costs a forward pass, and for each cut the part of one behind it.
    """
    cuts = [i for i in cuts if i > 0 and anatomy.graph.nodes[i].call >= 0]
    if under_way(anatomy.model):  # whose operations are numbered already
        return set()
    recording = record(anatomy, images, cuts)
    reach = _TOLERANCE * recording.logits.abs().max()
    found = set()
    for cut in cuts:
        try:
            with resumed(anatomy, recording, cut):
                logits = forward(anatomy.model, images)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            continue  # whatever the model's own code stumbles over
        if logits.shape == recording.logits.shape and bool(
            (logits - recording.logits).abs().max() <= reach
        ):
            found.add(cut)
    return found


def first_images(images: Images, number: int) -> Images:
    """The first few images of a batch."""
    if isinstance(images, Mapping):
        whole = batch_size(images)
        return {k: v[:number] if len(v) == whole else v for k, v in images.items()}
    return images[:number]


def _gist(out: Any, operands: Sequence[Tensor]) -> Any:  # noqa: ANN401 (any nesting of tensors)
    """An output without its numbers."""
    if isinstance(out, Tensor):
        same = next((i for i, t in enumerate(operands) if t is out), None)
        like = _Like(out.shape, out.dtype, out.device)
        return like if same is None else _Operand(same)
    if isinstance(out, tuple | list):
        return type(out)([_gist(part, operands) for part in out])
    return out


def _filled(gist: Any, operands: Sequence[Tensor]) -> Any:  # noqa: ANN401
    """An output like the one that the gist was taken of."""
    if isinstance(gist, _Like):
        return gist.empty()
    if isinstance(gist, _Operand):
        return operands[gist.number]
    if isinstance(gist, tuple | list):
        return type(gist)([_filled(part, operands) for part in gist])
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


class _Recorder(_Numbering):
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


class _Resumer(_Numbering):
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
            return _filled(gist, operands)
        # A later operation may change it in place, and another pass may begin with it.
        value = self.value.clone()
        held = operands[0] if name == "__setitem__" else _filled(gist, operands)
        if any(held is t for t in operands):  # in place: others hold this very tensor
            held.data = value
            return None if name == "__setitem__" else held
        return value


@contextmanager
def _running(model: nn.Module, mode: _Numbering) -> Iterator[None]:
    with as_written(), ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(mode.begin).remove)
        stack.callback(model.register_forward_hook(mode.end, always_call=True).remove)
        stack.enter_context(mode)
        yield
