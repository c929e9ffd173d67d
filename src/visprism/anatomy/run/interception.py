"""Acting: reading or exchanging a tensor at the node that makes it, while the model runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.trace.forward import as_written
from visprism.anatomy.trace.graph import Address, Graph, Node
from visprism.anatomy.trace.operations import function_name, tensors_in
from visprism.core.errors import InputError

Read = Callable[[Tensor], None]
Change = Callable[[Tensor], Tensor]  # gives what takes the tensor's place
# Sees a torch function's arguments and result; may give what takes the result's place.
Call = Callable[[Sequence[Any], Mapping[str, Any], Any], Any]
R = TypeVar("R")


@contextmanager
def module_hook(
    anatomy: Anatomy, node: Node, action: Read | Change, *, prepend: bool = False
) -> Iterator[None]:
    """Inside, `action` sees the tensor that `node` makes where a module takes or gives it.

    Args:
        anatomy: of the model that will run.
        node: whose tensor is looked for.
        action: a read; or a change, where the node is the output of a module.
        prepend: act before the hooks that are there already.
    """
    address = _simplest(node.addresses, anatomy.graph)
    module = anatomy.model.get_submodule(address.module)
    calls = Counter[str]()

    def is_now() -> bool:
        calls["module"] += 1
        return calls["module"] - 1 == address.call

    def before(_module, args, kwargs):  # noqa: ANN001, ANN202
        if is_now():
            _unseen(action, kwargs[address.key] if address.key in kwargs else args[address.key])

    def after(_module, _args, output):  # noqa: ANN001, ANN202
        if not is_now():
            return None
        new = _unseen(action, output if address.key is None else output[address.key])
        return new if new is None or address.key is None else _with(output, address.key, new)

    with ExitStack() as stack:
        start = anatomy.model.register_forward_pre_hook(lambda *_: calls.clear())
        stack.callback(start.remove)
        if address.side == "input":
            hook = module.register_forward_pre_hook(before, with_kwargs=True)
        else:
            hook = module.register_forward_hook(after, prepend=prepend)
        stack.callback(hook.remove)
        yield


def _with(output: Any, key: int | str, new: Tensor) -> Any:  # noqa: ANN401
    """What a module gives, with one of its tensors exchanged."""
    if isinstance(output, Mapping):
        return {**output, key: new}
    return tuple(new if i == key else part for i, part in enumerate(output))


def _simplest(addresses: Sequence[Address], graph: Graph) -> Address:
    """An address at a module that is called once, its output rather than its input."""
    return min(addresses, key=lambda a: (graph.calls[a.module] > 1, a.side == "input"))


def _unseen(action: Callable[[Tensor], R], x: Tensor) -> R:
    """What an action gives; it is not the model's, so a mode that counts must not see it."""
    with torch._C.DisableTorchFunction():
        return action(x)


@contextmanager
def sized(anatomy: Anatomy) -> Iterator[None]:
    """Inside, the model takes images of no other size than it was dissected with.

    Where its tokens lie was read off that size.

    Raises:
        InputError: on the forward pass, if the images have another height or width.
    """
    own = tuple(anatomy.graph.nodes[0].shape or ())[-2:]

    def check(_module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        images = next(t for t in tensors_in([args, kwargs]) if t.ndim == 4)
        if tuple(images.shape[-2:]) != own:
            raise InputError(
                f"the images are {images.shape[-2]}x{images.shape[-1]}, the model was "
                f"dissected with {own[0]}x{own[1]}; resize the images, or dissect the model "
                "with images of this size"
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
    reads: Mapping[int, Read],
    changes: Mapping[int, Change],
    calls: Mapping[int, Call] = {},
) -> Iterator[None]:
    """Inside, each action sees or exchanges the tensor that its node, named by index, makes.

    Actions of `calls` see the arguments of the torch function too.
    """
    nodes = anatomy.graph.nodes
    with ExitStack() as stack:
        running = _RUNNING.get(anatomy.model)
        if running is None:
            running = stack.enter_context(_counting(anatomy.model))
        stack.enter_context(running.acting(_Actions(nodes, reads, changes, calls)))
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


class _Counting(TorchFunctionMode):
    """Numbers the torch functions of a forward pass as the trace did, and acts at some.

    One for each model, however many operations are under way: so all number alike, and at one
    tensor every change comes before every read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = None  # of the next call; None: no forward pass is under way
        self.actions: list[_Actions] = []

    @contextmanager
    def acting(self, actions: _Actions) -> Iterator[None]:
        self.actions.append(actions)
        try:
            yield
        finally:
            self.actions.remove(actions)

    def begin(self, _module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        """A forward pass begins."""
        self.number = 0
        for actions in self.actions:
            if actions.of_image is not None:
                _unseen(actions.of_image, tensors_in([args, kwargs])[0])

    def end(self, *_: Any) -> None:  # noqa: ANN401
        """A forward pass has ended, or failed."""
        self.number = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        out = func(*args, **(kwargs or {}))
        name = function_name(func)
        if self.number is None or not (name == "__setitem__" or tensors_in(out)):
            return out
        number, self.number = self.number, self.number + 1
        for actions in self.actions:
            was = actions.ops.get(number, name)
            if was != name:
                raise InputError(
                    f"operation {number} of this pass is {name}, but was {was} when the model "
                    "was dissected; dissect it with images like those that it runs on"
                )
        for call in (a.calls[number] for a in self.actions if number in a.calls):
            with torch._C.DisableTorchFunction():
                new = call(args, kwargs or {}, out)
            out = out if new is None else new
        for change in (a.changes[number] for a in self.actions if number in a.changes):
            out = _exchanged(out, args, name, change)
        for read in (a.reads[number] for a in self.actions if number in a.reads):
            _unseen(read, args[0] if name == "__setitem__" else out)
        return out


def _exchanged(out: Any, args: Sequence[Any], name: str, change: Change) -> Any:  # noqa: ANN401
    """What a torch function gives, with its tensor exchanged."""
    tensor = args[0] if name == "__setitem__" else out
    new = _unseen(change, tensor)
    if any(t is tensor for t in tensors_in(args)):  # in place: others hold this very tensor
        _unseen(tensor.copy_, new)
        return out
    return new


def under_way(model: nn.Module) -> bool:
    """Whether operations of the model are acted at just now."""
    return model in _RUNNING


# Empty again when all surgery has ended.
_RUNNING: WeakKeyDictionary[nn.Module, _Counting] = WeakKeyDictionary()


@contextmanager
def _counting(model: nn.Module) -> Iterator[_Counting]:
    mode = _Counting()
    with as_written(), ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(mode.begin, with_kwargs=True).remove)
        stack.callback(model.register_forward_hook(mode.end, always_call=True).remove)
        stack.callback(_RUNNING.pop, model)
        _RUNNING[model] = mode
        stack.enter_context(mode)
        yield mode
