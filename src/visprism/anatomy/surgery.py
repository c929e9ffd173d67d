"""Surgery: watch or change a model inside a ``with`` block; it is given back as it was.

`watch` reads with ordinary forward hooks, at full speed. `replace` and `lesion` change the
tensor that leaves a block at the very operation that makes it, found by its number in the
trace, so that they work on any architecture; the model then runs under a `TorchFunctionMode`,
eagerly.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from visprism.anatomy.blocks import Anatomy, Block
from visprism.anatomy.forward import as_written
from visprism.anatomy.graph import Address, Graph, Node
from visprism.anatomy.layout import Layout
from visprism.anatomy.operations import function_name, tensors_in
from visprism.errors import InputError

T = TypeVar("T")
R = TypeVar("R", Tensor, None)
Action = Callable[[Tensor], Tensor | None]  # what takes a tensor's place; None: it stays


@contextmanager
def watch(
    anatomy: Anatomy,
    keep: Callable[[Tensor], T] = torch.clone,
    *,
    blocks: Iterable[Block] | None = None,
) -> Iterator[dict[str, T]]:
    """Collect something of each block's feature map of the latest forward pass, by block name.

    Args:
        anatomy: of the model that will run.
        keep: applied to the feature map (B, C, H, W) at once, inside the forward pass. It must
            return new memory: a later layer may change the tensor in place.
        blocks: which to watch; all that have a layout by default.

    Yields:
        A dictionary that each forward pass fills.
    """
    kept: dict[str, T] = {}
    hidden: dict[int, Action] = {}  # no module takes or gives these tensors
    with ExitStack() as stack:
        for block in anatomy if blocks is None else blocks:
            if block.layout is None:
                continue

            @_unseen
            def read(x: Tensor, name: str = block.name, layout: Layout = block.layout) -> None:
                kept[name] = keep(layout.to_map(x))

            node = anatomy.graph.nodes[block.end]
            if node.addresses:
                stack.enter_context(_hooked(anatomy, node, read))
            else:
                hidden[node.index] = read
        if hidden:
            stack.enter_context(_at_operations(anatomy, hidden))
        yield kept


@contextmanager
def replace(
    anatomy: Anatomy, block: Block, function: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Inside, `block` computes ``function(x)`` of the tensor that comes into it.

    `x` is as the model holds it (tokens, channels last); see `Block.layout`. The operations of
    the block still run; their result is dropped.

    Raises:
        InputError: on the forward pass, if the result has another shape than the block's.
    """
    came_in: list[Tensor] = []

    @_unseen
    def remember(x: Tensor) -> None:
        came_in[:] = [x.clone()]  # a later operation may change it in place

    @_unseen
    def exchange(out: Tensor) -> Tensor:
        new = function(came_in.pop())
        if new.shape != out.shape:
            raise InputError(
                f"the replacement of block {block.name!r} gives {tuple(new.shape)}; wanted "
                f"{tuple(out.shape)}, as the block gives"
            )
        return new

    with _at_operations(anatomy, {block.start: remember, block.end: exchange}):
        yield


def lesion(anatomy: Anatomy, block: Block) -> AbstractContextManager[None]:
    """Cut one block out: inside, it hands its input on unchanged.

    Raises:
        InputError: if the block changes the shape of the feature map; it has no identity to
            fall back to.

    Source: Veit et al. (2016), Residual networks behave like ensembles, sec. 4.1.
    """
    before, after = (anatomy.graph.nodes[i] for i in (block.start, block.end))
    came, goes = before.layout, after.layout
    shapes = before.shape or (), after.shape or ()
    same_grid = (came and came.grid) == (goes and goes.grid)
    if not same_grid or torch.Size(shapes[0]).numel() != torch.Size(shapes[1]).numel():
        raise InputError(
            f"block {block.name!r} ({block.kind}) maps {before.shape} to {after.shape}; only a "
            "block that keeps the shape of its feature map can be lesioned"
        )

    def identity(x: Tensor) -> Tensor:
        if came is not None and goes is not None and came.axes != goes.axes:
            x = came.to_map(x)  # the same numbers, tokens on one side and a grid on the other
            x = x if goes.axes == "b c h w" else x.permute(0, 2, 3, 1)
        return x.reshape((len(x), *shapes[1][1:]))

    return replace(anatomy, block, identity)


def _unseen(action: Callable[[Tensor], R]) -> Callable[[Tensor], R]:
    """The action, hidden from modes that count what the model does (surgery inside surgery)."""

    def hidden(x: Tensor) -> R:
        with torch._C.DisableTorchFunction():
            return action(x)

    return hidden


# Reading with hooks.


@contextmanager
def _hooked(anatomy: Anatomy, node: Node, action: Action) -> Iterator[None]:
    """Inside, `action` sees the tensor that `node` makes where a module takes or gives it."""
    address = _simplest(node.addresses, anatomy.graph)
    module = anatomy.model.get_submodule(address.module)
    calls = Counter[str]()

    def is_now() -> bool:
        calls["module"] += 1
        return calls["module"] - 1 == address.call

    def before(_module, args, kwargs):  # noqa: ANN001, ANN202
        if is_now():
            action(kwargs[address.key] if address.key in kwargs else args[address.key])

    def after(_module, _args, output):  # noqa: ANN001, ANN202
        if not is_now():
            return None
        return action(output if address.key is None else output[address.key])

    with ExitStack() as stack:
        start = anatomy.model.register_forward_pre_hook(lambda *_: calls.clear())
        stack.callback(start.remove)
        if address.side == "input":
            hook = module.register_forward_pre_hook(before, with_kwargs=True)
        else:
            hook = module.register_forward_hook(after)
        stack.callback(hook.remove)
        yield


def _simplest(addresses: Sequence[Address], graph: Graph) -> Address:
    """An address at a module that is called once, its output rather than its input."""
    return min(addresses, key=lambda a: (graph.calls[a.module] > 1, a.side == "input"))


# Changing at the operation.


class _Numbered(TorchFunctionMode):
    """Numbers the torch functions of a forward pass as the trace did, and acts at some."""

    def __init__(self, actions: Mapping[int, tuple[Node, Action]]) -> None:
        super().__init__()
        self.actions = actions  # by the number of the call
        self.running: int | None = None  # None: no forward pass is under way

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        out = func(*args, **(kwargs or {}))
        if self.running is None:
            return out
        name = function_name(func)
        if not (name == "__setitem__" or tensors_in(out)):
            return out
        found = self.actions.get(self.running)
        self.running += 1
        if found is None:
            return out
        node, action = found
        if name != node.op:
            raise InputError(
                f"operation {node.call} of this pass is {name}, but was {node.op} when the "
                "model was dissected; dissect it with images like those that it runs on"
            )
        tensor = args[0] if name == "__setitem__" else out
        new = action(tensor)
        if new is None:
            return out
        if any(t is tensor for t in tensors_in(args)):  # in place: others hold this very tensor
            _unseen(tensor.copy_)(new)
            return out
        return new


@contextmanager
def _at_operations(anatomy: Anatomy, actions: Mapping[int, Action]) -> Iterator[None]:
    """Inside, each action sees, and may exchange, the tensor that its node makes."""
    model, nodes = anatomy.model, anatomy.graph.nodes
    numbered = {nodes[i].call: (nodes[i], a) for i, a in actions.items() if nodes[i].call >= 0}
    mode = _Numbered(numbered)

    def before(_module, args, kwargs):  # noqa: ANN001, ANN202
        if 0 in actions:
            actions[0](tensors_in([args, kwargs])[0])
        mode.running = 0

    def after(_module, _args, _output):  # noqa: ANN001, ANN202
        mode.running = None

    with as_written(), ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(before, with_kwargs=True).remove)
        stack.callback(model.register_forward_hook(after, always_call=True).remove)
        for index, action in actions.items():
            if nodes[index].op == "opaque":
                stack.enter_context(_hooked(anatomy, nodes[index], action))
        stack.enter_context(mode)
        yield
