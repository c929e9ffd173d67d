"""Interception: reading or replacing the tensor of a node in a forward pass."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.trace.forward import as_written
from visprism.anatomy.trace.graph import Address, Graph, Node
from visprism.anatomy.trace.operation_counter import OperationCounter, count_operations
from visprism.anatomy.trace.operations import Operation, tensors_in
from visprism.core.errors import InputError

Read = Callable[[Tensor], None]
Change = Callable[[Tensor], Tensor]  # returns the replacement
# Receives arguments and result of a torch function; may return a replacement.
Call = Callable[[Sequence[Any], Mapping[str, Any], Any], Any]
R = TypeVar("R")


@contextmanager
def module_hook(
    anatomy: Anatomy, node: Node, action: Read | Change, *, prepend: bool = False
) -> Iterator[None]:
    """Inside, `action` sees the tensor that `node` makes where a module takes or gives it.

    A change is made where a module gives it: at its input others hold it already.
    """
    gives = [address for address in node.addresses if address.side == "output"]
    address = _simplest(gives if prepend else node.addresses, anatomy.graph)
    module = anatomy.model.get_submodule(address.module)
    calls = Counter[str]()

    def is_now() -> bool:
        calls["module"] += 1
        return calls["module"] - 1 == address.call

    def before(_module, args, kwargs):  # noqa: ANN001
        if is_now():
            _outside_mode(
                action, kwargs[address.key] if address.key in kwargs else args[address.key]
            )

    def after(_module, _args, output):  # noqa: ANN001
        if not is_now():
            return None
        new = _outside_mode(action, output if address.key is None else output[address.key])
        return new if new is None or address.key is None else _with(output, address.key, new)

    with ExitStack() as stack:
        stack.enter_context(as_written())  # compiled code would not call the hooks
        start = anatomy.model.register_forward_pre_hook(lambda *_: calls.clear())
        stack.callback(start.remove)
        if address.side == "input":
            hook = module.register_forward_pre_hook(before, with_kwargs=True)
        else:
            hook = module.register_forward_hook(after, prepend=prepend)
        stack.callback(hook.remove)
        yield


def _with(output: Any, key: int | str, new: Tensor) -> Any:
    """The output of a module, with one of its tensors replaced."""
    if isinstance(output, Mapping):
        return {**output, key: new}
    return tuple(new if i == key else part for i, part in enumerate(output))


def _simplest(addresses: Sequence[Address], graph: Graph) -> Address:
    """An address at a module that is called once, its output rather than its input."""
    return min(addresses, key=lambda a: (graph.calls[a.module] > 1, a.side == "input"))


def _outside_mode(action: Callable[[Tensor], R], x: Tensor) -> R:
    """The result of an action, which a mode that counts operations must not see."""
    with torch._C.DisableTorchFunction():
        return action(x)


def _image_in(args: Any, kwargs: Any) -> Tensor:
    """The images among the arguments of a model."""
    return next(t for t in tensors_in([args, kwargs]) if t.ndim == 4)


@contextmanager
def fixed_image_size(anatomy: Anatomy) -> Iterator[None]:
    """Inside, the model takes images of no other size than it was dissected with.

    Positions of tokens were derived from that size.
    """
    expected = anatomy.image_shape[-2:]

    def check(_module: nn.Module, args: Any, kwargs: Any) -> None:
        images = _image_in(args, kwargs)
        if tuple(images.shape[-2:]) != expected:
            raise InputError(
                f"images must be {expected[0]}x{expected[1]}, as the model was dissected with, "
                f"got {images.shape[-2]}x{images.shape[-1]}. Resize the images, or dissect the "
                "model with images of this size."
            )

    hook = anatomy.model.register_forward_pre_hook(check, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def intercept(
    anatomy: Anatomy,
    *,
    reads: Mapping[int, Read] = {},
    changes: Mapping[int, Change] = {},
    calls: Mapping[int, Call] = {},
) -> Iterator[None]:
    """Inside, each action sees or exchanges the tensor that its node, named by index, makes.

    Actions of `calls` see the arguments of the torch function too.
    """
    nodes = anatomy.graph.nodes
    with ExitStack() as stack:
        mode = _RUNNING.get(anatomy.model)
        if mode is None:
            mode = _RUNNING[anatomy.model] = _Interceptor()
            stack.callback(_RUNNING.pop, anatomy.model)
            counted = count_operations(anatomy.model, mode, anatomy.graph.caches)
            stack.enter_context(counted)
        actions = _Actions(nodes, reads, changes, calls)
        mode.actions.append(actions)
        stack.callback(mode.actions.remove, actions)
        for index, action in [*reads.items(), *changes.items()]:
            if nodes[index].op == "opaque":  # no torch function: its module gives the tensor
                first = action in changes.values()
                stack.enter_context(module_hook(anatomy, nodes[index], action, prepend=first))
        yield


class _Actions:
    """What is read and changed, by the number of the torch function that makes the tensor."""

    def __init__(
        self,
        nodes: Sequence[Node],
        reads: Mapping[int, Read],
        changes: Mapping[int, Change],
        calls: Mapping[int, Call],
    ) -> None:
        self.of_image = reads.get(0)
        self.reads = {nodes[i].call: action for i, action in reads.items()}
        self.changes = {nodes[i].call: action for i, action in changes.items()}
        self.calls = {nodes[i].call: action for i, action in calls.items()}
        last = max([*self.reads, *self.changes, *self.calls])
        self.ops = {n.call: n.op for n in nodes if 0 <= n.call <= last}


class _Interceptor(OperationCounter):
    """Runs actions at numbered operations.

    One for each model, however many interventions are active, so that all number alike and, at
    one tensor, every change precedes every read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[_Actions] = []

    def begin(self, module: nn.Module, args: Any, kwargs: Any, /) -> None:
        """A forward pass begins."""
        super().begin(module, args, kwargs)
        for actions in self.actions:
            if actions.of_image is not None:
                _outside_mode(actions.of_image, _image_in(args, kwargs))

    def after(self, operation: Operation) -> Any:
        """Calls, then changes, then reads."""
        number, name, out = operation.number, operation.name, operation.out
        for actions in self.actions:
            traced = actions.ops.get(number, name)
            if traced != name == "view_as":  # of autograd: the trace had no gradients
                self.number = number
                return out
            if traced != name:
                raise InputError(
                    f"operation {number} of a forward pass must be {traced}, as when the model "
                    f"was dissected, got {name}. Dissect the model with images like those that "
                    "it runs on."
                )
        for call in (a.calls[number] for a in self.actions if number in a.calls):
            with torch._C.DisableTorchFunction():
                new = call(operation.args, operation.kwargs, out)
            out = out if new is None else new
        for change in (a.changes[number] for a in self.actions if number in a.changes):
            out = _exchanged(operation, out, change)
        for read in (a.reads[number] for a in self.actions if number in a.reads):
            _outside_mode(read, operation.args[0] if name == "__setitem__" else out)
        return out


def _exchanged(operation: Operation, out: Any, change: Change) -> Any:
    """The result of a torch function, with its tensor replaced."""
    tensor = operation.args[0] if operation.name == "__setitem__" else out
    new = _outside_mode(change, tensor)
    if any(t is tensor for t in tensors_in(operation.args)):  # others hold this very tensor
        _outside_mode(tensor.copy_, new)
        return out
    return new


# Empty again when all interventions have ended.
_RUNNING: WeakKeyDictionary[nn.Module, _Interceptor] = WeakKeyDictionary()
