"""The graph of a model: which operation made which tensor, traced in one forward pass.

The model runs once under a `TorchFunctionMode`, with module hooks that keep a stack of names.
Each torch function whose result depends on the image becomes a `Node`. What torch functions do
not show (scripted functions, custom autograd functions) becomes one opaque node, at the
innermost module that it is hidden in.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from visprism.anatomy import operations
from visprism.anatomy.flops import MacCounter
from visprism.anatomy.forward import Images, forward
from visprism.anatomy.layout import Layout
from visprism.anatomy.operations import Role, plain, role_of, tensors_in
from visprism.anatomy.positions import (
    Positions,
    layout_of,
    moved,
    raster,
    through_linear,
    through_product,
    through_reduction,
)
from visprism.errors import InputError


@dataclass(frozen=True)
class Address:
    """Where a hook can read a tensor: what a module takes or gives, at its n-th call."""

    module: str
    call: int  # 0 for the module's first call in a forward pass
    side: str  # "input" or "output"
    key: int | str | None  # position or name among several; None: the output itself


@dataclass
class Node:
    """One call of a torch function."""

    index: int
    op: str
    role: Role
    module: str  # path of the innermost module that made the call
    call: int  # running number among the pass's torch functions that give tensors; -1: none
    inputs: tuple[int, ...]  # nodes that made its operands
    shape: tuple[int, ...] | None  # of the tensor it gives; None if it gives several
    parameters: tuple[str, ...] = ()
    layout: Layout | None = None
    macs: int = 0  # multiply-accumulate operations, of the whole batch
    addresses: list[Address] = field(default_factory=list)

    @property
    def pooled(self) -> bool:
        """Whether the tensor holds one vector for each image: no positions are left."""
        return self.shape is not None and prod(self.shape[1:]) == max(self.shape[1:], default=1)


@dataclass(frozen=True)
class Span:
    """One call of a module: the nodes that came in and the node that went out."""

    module: str
    inputs: frozenset[int]
    output: int | None  # None: it gave several tensors, or none that depends on the image


@dataclass(frozen=True)
class Graph:
    """The trace of one forward pass. Node 0 is the image."""

    nodes: tuple[Node, ...]
    spans: tuple[Span, ...]
    calls: Mapping[str, int]  # how often each module was called
    output: int  # node that made the logits
    batch_size: int

    def macs(self, start: int, end: int) -> int:
        """Multiply-accumulates for one image of the nodes after `start` up to `end`."""
        return sum(node.macs for node in self.nodes[start + 1 : end + 1]) // self.batch_size

    def ancestors(self, index: int) -> set[int]:
        """The node itself and every node that it depends on."""
        found, left = {index}, [index]
        while left:
            new = [i for i in self.nodes[left.pop()].inputs if i not in found]
            found.update(new)
            left.extend(new)
        return found


class _Recorder(TorchFunctionMode):
    """Writes down each torch function while it is on."""

    def __init__(self, model: nn.Module, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.nodes: list[Node] = []
        self.spans: list[Span] = []
        self.calls: Counter[str] = Counter()
        self.running = 0
        self._stack: list[tuple[str, int, frozenset[int]]] = []
        self._made_by: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor -> node
        self._made_of: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor -> parameter names
        self._positions: WeakIdKeyDictionary = WeakIdKeyDictionary()
        for name, parameter in model.named_parameters():
            self._made_of[parameter] = frozenset({name})

    # Nodes.

    def add_images(self, images: Iterable[Tensor]) -> None:
        """Node 0: all tensors that come in; the first with four axes has the grid."""
        self.nodes.append(Node(0, "image", "layout", "", -1, (), None))
        for tensor in images:
            self._made_by[tensor] = 0
            if tensor.ndim == 4 and not any(
                len(p.shadow.shape) for p in self._positions.values()
            ):
                self.nodes[0].shape = tuple(tensor.shape)
                positions = raster(tensor.shape)
                self._positions[tensor] = positions
                self.nodes[0].layout = layout_of(positions, self.batch_size)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        with MacCounter() as counter:
            out = func(*args, **kwargs)
        name = plain(function_name(func))
        made = [args[0]] if name == "__setitem__" else tensors_in(out)
        if made:
            self._record(func, name, args, kwargs, made, counter.macs)
            self.running += 1
        return out

    def _record(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        made: list[Tensor],
        macs: int,
    ) -> None:
        operands = tensors_in(args) + tensors_in(kwargs)
        inputs = list(dict.fromkeys(self._made_by[t] for t in operands if t in self._made_by))
        parameters = frozenset().union(*(self._made_of.get(t, ()) for t in operands))
        # Masks and indices made from the image carry no feature map.
        carries = any(t.is_floating_point() or t.is_complex() for t in made)
        if not inputs or not carries:
            if parameters:
                for tensor in made:
                    self._made_of[tensor] = parameters | self._made_of.get(tensor, frozenset())
            return
        role = role_of(name, args, kwargs, data_inputs=len(inputs), shape=made[0].shape)
        positions = self._positions_after(func, name, role, args, kwargs, made)
        if role == "linear" and self._mixes_positions(positions, operands, made):
            role = "token-mixing"
        node = self._add(name, role, inputs, made, parameters)
        node.macs = macs
        for tensor, place in zip(made, positions or [None] * len(made), strict=True):
            self._made_by[tensor] = node.index
            if tensor._base is not None and any(t is tensor for t in operands):
                self._made_by[tensor._base] = node.index  # changed in place through a view
            if place is not None and place.shadow.shape == tensor.shape:
                self._positions[tensor] = place
            else:
                self._positions.pop(tensor, None)
        if len(made) == 1:
            node.layout = layout_of(self._positions.get(made[0]), self.batch_size)

    def _add(
        self,
        name: str,
        role: Role,
        inputs: Iterable[int],
        made: list[Tensor],
        parameters: Iterable[str],
    ) -> Node:
        module = self._stack[-1][0] if self._stack else ""
        shape = tuple(made[0].shape) if len(made) == 1 else None
        node = Node(
            len(self.nodes), name, role, module, self.running, tuple(inputs), shape,
            tuple(sorted(parameters)),
        )  # fmt: skip
        self.nodes.append(node)
        return node

    # Positions.

    def _positions_after(
        self,
        func: Callable[..., Any],
        name: str,
        role: Role,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        made: list[Tensor],
    ) -> list[Positions | None] | None:
        if name in operations.LAYOUTS:
            if name == "__setitem__":
                args = (args[0], args[1], args[2])
            return self._moved(func, name, args, kwargs)
        out = made[0]
        if role in {"conv", "pool", "global pool"} or name in {"conv2d", "interpolate", "fold"}:
            grid = out.ndim == 4 and not (role == "global pool" and out.shape[2:].numel() == 1)
            return [raster(out.shape)] if grid else None
        if (role == "bilinear" and name != "einsum") or name == "scaled_dot_product_attention":
            left, right = (self._positions.get(t) for t in tensors_in(args)[-2:])
            if role == "attention":
                left, right = self._positions.get(tensors_in([args, kwargs])[0]), None
            return [through_product(left, right, out.shape)]
        known = [(t, p) for t in tensors_in(args) if (p := self._positions.get(t)) is not None]
        if not known:
            return None
        if role == "linear":
            axis = 1 if name in operations.CONVOLUTIONS else -1
            if known[0][0].ndim != out.ndim or _is_left_product(name, args, known[0][0]):
                return None
            return [through_linear(known[0][1], axis, out.shape)]
        if name in operations.REDUCTIONS:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if not isinstance(axis, int):
                return None
            return [through_reduction(known[0][1], axis, out.shape)] * len(made)
        for tensor, positions in known:
            if tensor.shape == out.shape and positions.some:
                return [positions] + [None] * (len(made) - 1)
        try:
            return [Positions(known[0][1].shadow.expand(out.shape), known[0][1].grid)]
        except RuntimeError:  # another shape than its operand's: no telling
            return None

    def _moved(
        self,
        func: Callable[..., Any],
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> list[Positions | None] | None:
        def is_index(tensor: Tensor) -> bool:
            return not tensor.is_floating_point()

        if name == "__setitem__":
            target = self._positions.get(args[0])
            shadow = target.shadow.clone() if target else torch.zeros(args[0].shape)
            value = args[2] if isinstance(args[2], Tensor) else None
            source = None if value is None else self._positions.get(value)
            grid = (target or source).grid if (target or source) else None
            if grid is None:
                return None
            shadow[args[1]] = 0.0 if source is None else source.shadow
            return [Positions(shadow, grid)]
        return moved(func, args, kwargs, self._positions.get, is_index)

    def _mixes_positions(
        self,
        positions: list[Positions | None] | None,
        operands: list[Tensor],
        made: list[Tensor],
    ) -> bool:
        """Whether a linear map had places and lost them, though it kept the tensor's axes."""
        lost = positions is None or positions[0] is None
        return lost and any(
            t in self._positions and self._positions[t].some and t.ndim == made[0].ndim > 2
            for t in operands
        )

    # Modules.

    def enter(self, name: str, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        """A module is called."""
        call, self.calls[name] = self.calls[name], self.calls[name] + 1
        inputs = frozenset(
            self._made_by[t]
            for t in tensors_in(args) + tensors_in(kwargs)
            if t in self._made_by
        )
        self._stack.append((name, call, inputs))
        self._address(name, call, "input", {**dict(enumerate(args)), **kwargs})

    def leave(self, output: Any) -> None:  # noqa: ANN401
        """A module returns."""
        name, call, inputs = self._stack[-1]
        tensors = tensors_in(output)
        if inputs and tensors and not any(t in self._made_by for t in tensors):
            node = self._add("opaque", "opaque", sorted(inputs), tensors, ())
            node.call = -1  # no torch function
            for tensor in tensors:
                self._made_by[tensor] = node.index
        self._stack.pop()
        if isinstance(output, Tensor):
            self._address(name, call, "output", {None: output})
        elif isinstance(output, Mapping):
            self._address(name, call, "output", output)
        elif isinstance(output, tuple | list):
            self._address(name, call, "output", dict(enumerate(output)))
        made = {self._made_by[t] for t in tensors if t in self._made_by}
        self.spans.append(Span(name, inputs, made.pop() if len(made) == 1 else None))

    def _address(self, name: str, call: int, side: str, tensors: Mapping[Any, Any]) -> None:
        for key, tensor in tensors.items():
            if isinstance(tensor, Tensor) and tensor in self._made_by:
                address = Address(name, call, side, key)
                self.nodes[self._made_by[tensor]].addresses.append(address)

    def node_of(self, tensor: Tensor) -> int | None:
        """The node that made a tensor."""
        return self._made_by.get(tensor)


def function_name(func: Callable[..., Any]) -> str:
    """The name of a torch function; of a property such as `Tensor.mT`, that of the property."""
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        return getattr(func.__self__, "__name__", name)
    return name


def _is_left_product(name: str, args: Sequence[Any], data: Tensor) -> bool:
    """Whether a matrix stands on the left of the data, so that its rows are mixed."""
    return name in operations.PRODUCTS and len(args) > 1 and args[1] is data


@contextmanager
def named_calls(
    model: nn.Module,
    enter: Callable[[str, Any, Any], None],
    leave: Callable[[Any], None],
) -> Iterator[None]:
    """Inside, `enter` and `leave` hear of every call of a submodule."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if not name or isinstance(module, torch.jit.ScriptModule):
                continue

            def before(_module, args, kwargs, name=name):  # noqa: ANN001, ANN202
                enter(name, args, kwargs)

            def after(_module, _args, output):  # noqa: ANN001, ANN202
                leave(output)

            hooks = (
                module.register_forward_pre_hook(before, with_kwargs=True),
                module.register_forward_hook(after),
            )
            for hook in hooks:
                stack.callback(hook.remove)
        yield


def trace(model: nn.Module, images: Images) -> Graph:
    """Run the model once and write down its graph.

    Raises:
        InputError: if the logits do not depend on the image as far as torch functions show.
    """
    tensors = tensors_in(images)
    recorder = _Recorder(model, len(tensors[0]))
    recorder.add_images(tensors)
    eager = torch.compiler.set_stance("force_eager")  # compiled modules show their inside
    with torch.no_grad(), eager, named_calls(model, recorder.enter, recorder.leave), recorder:
        logits = forward(model, images)
    output = recorder.node_of(logits)
    if output is None:
        raise InputError(
            f"the output of {type(model).__name__} does not depend on the images as far as torch "
            "functions show; a scripted or exported model cannot be dissected: pass the nn.Module"
        )
    return Graph(
        nodes=tuple(recorder.nodes),
        spans=tuple(recorder.spans),
        calls=dict(recorder.calls),
        output=output,
        batch_size=recorder.batch_size,
    )
