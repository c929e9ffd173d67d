"""The trace: the graph of a model, recorded in one forward pass.

The model runs under a `TorchFunctionMode`, with module hooks that keep a stack of names.
Each torch function whose result depends on the image becomes a node. What torch functions do
not show (scripted functions, custom autograd functions) becomes one opaque node, at the
innermost module that it is hidden in.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from visprism.anatomy.trace import operations as vocabulary
from visprism.anatomy.trace.forward import (
    Images,
    as_written,
    batch_size,
    copies_of,
    forward,
    levels_of,
    output_of,
)
from visprism.anatomy.trace.graph import Address, Graph, Node, Span
from visprism.anatomy.trace.operation_counter import (
    MacCounter,
    OperationCounter,
    recurrence_macs,
)
from visprism.anatomy.trace.operations import (
    CREATIONS,
    RECURRENCES,
    Operation,
    Role,
    tensors_in,
)
from visprism.anatomy.trace.token_grids import PositionsOf, attention_geometry
from visprism.anatomy.trace.token_positions import (
    PRODUCT,
    TokenPositions,
    apply_layout_op,
    layout_of,
    of_first_channel,
    propagate_einsum,
    propagate_linear,
    propagate_reduction,
    propagate_row,
    propagate_windows,
    raster,
    sums_over_places,
    unplaced,
)
from visprism.core.errors import InputError


def positions_after(
    call: Operation, positions_of: PositionsOf, *, chosen: bool
) -> list[TokenPositions | None]:
    """Positions of each tensor that a call returns; None if unknown.

    Unknown too where following them fails: the model itself runs.
    """
    unknown: list[TokenPositions | None] = [None] * len(call.made)
    if call.name in vocabulary.ORDERINGS | vocabulary.MEMORY_VIEWS:
        return unknown
    if chosen and call.name in vocabulary.LAYOUTS:
        return unknown
    try:
        positions = _followed_positions(call, positions_of)
    except Exception:  # whatever a torch function raises for index maps
        return unknown
    return positions if len(positions) == len(unknown) else unknown


def _followed_positions(
    call: Operation, positions_of: PositionsOf
) -> list[TokenPositions | None]:
    if call.name == "__setitem__":
        return [_after_assignment(call, positions_of)]
    if call.name in vocabulary.LAYOUTS:
        moved = apply_layout_op(call.function, call.args, call.kwargs, positions_of)
        if moved is not None and call.name in vocabulary.JOINS:
            return [positions and of_first_channel(positions) for positions in moved]
        return moved or [None] * len(call.made)
    rest: list[TokenPositions | None] = [None] * (len(call.made) - 1)
    return [_after_work(call, positions_of), *rest]


def mixes_positions(
    call: Operation, after: Sequence[TokenPositions | None], positions_of: PositionsOf
) -> bool:
    """Whether a linear map, or a product of two tensors, sums over positions.

    A linear map that had places and lost them, though it kept the tensor's axes, does; and a
    product unless all that it sums over is known to lie at one place.
    """
    if call.role == "bilinear":
        equation = call.args[0] if call.name == "einsum" else PRODUCT
        pair = [positions_of(t) for t in call.operands[-2:]]
        return not isinstance(equation, str) or sums_over_places(equation, pair)
    placed = [t for t in call.operands if (p := positions_of(t)) is not None and p.any_placed]
    axes = call.made[0].ndim
    return (
        call.role == "linear" and after[0] is None and any(t.ndim == axes > 2 for t in placed)
    )


def _after_assignment(call: Operation, positions_of: PositionsOf) -> TokenPositions | None:
    """``target[index] = value``."""
    target, index, value = call.args
    before = positions_of(target)
    source = positions_of(value) if isinstance(value, Tensor) else None
    positions = before or source
    if positions is None:
        return None
    index_map = before.index_map.clone() if before else unplaced(target.shape)
    parts = index if isinstance(index, tuple) else (index,)
    at = tuple(part.cpu() if isinstance(part, Tensor) else part for part in parts)
    index_map[at] = 0.0 if source is None else source.index_map
    return TokenPositions(index_map, positions.grid)


def _after_work(call: Operation, positions_of: PositionsOf) -> TokenPositions | None:
    shape = call.made[0].shape
    if call.name == "conv1d" and call.role == "conv":
        before = positions_of(call.operands[0])
        return None if before is None else propagate_row(before, shape)
    slides = call.role in {"conv", "pool", "global pool"}
    if slides or call.name in {"conv2d", "grid_sample", *vocabulary.WINDOWS}:
        pooled = call.role == "global pool" and shape[2:].numel() == 1
        if len(shape) != 4 or pooled:
            return None
        before = positions_of(call.operands[0])
        pointwise = call.role == "linear" and before is not None
        if pointwise and before.index_map.shape[2:] == shape[2:] and before.grid != (1, 1):
            # A grid of one position, such as of pooled gates, would place nothing.
            return propagate_linear(before, 1, shape) or raster(shape)
        return propagate_windows(before, shape) or raster(shape)
    if call.name == "scaled_dot_product_attention":
        return propagate_einsum(PRODUCT, [positions_of(call.operands[0]), None], shape)
    if call.name == "einsum" and isinstance(call.args[0], str):
        return propagate_einsum(call.args[0], [positions_of(t) for t in call.operands], shape)
    if call.role == "bilinear":
        return propagate_einsum(PRODUCT, [positions_of(t) for t in call.operands[-2:]], shape)
    placed = [(t, p) for t in call.operands if (p := positions_of(t)) is not None]
    if not placed:
        return None
    first, positions = placed[0]
    if call.role == "linear":
        same_axes = first.ndim == len(shape)
        return propagate_linear(positions, _summed(call, first), shape) if same_axes else None
    if call.name in vocabulary.REDUCTIONS:
        axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
        return propagate_reduction(positions, axis, shape) if isinstance(axis, int) else None
    for tensor, place in placed:
        if tensor.shape == shape and place.any_placed:
            return place
    try:
        return TokenPositions(positions.index_map.expand(shape), positions.grid)
    except RuntimeError:  # another shape than its operand's: unknown
        return None


def _summed(call: Operation, data: Tensor) -> int:
    """The axis of the data that a linear map sums over: the channels', as a rule."""
    if call.name in vocabulary.CONVOLUTIONS:
        return 1
    if call.name in vocabulary.PRODUCTS:
        left = call.operands[-1 if call.name == "__rmatmul__" else -2]
        return -1 if data is left else -2
    return -1


class _Recorder(OperationCounter):
    """Records each torch function while it is active."""

    def __init__(
        self, model: nn.Module, batch_size: int, constant: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.batch_size = batch_size
        self._constant = constant  # modules whose output does not depend on the image
        self.nodes: list[Node] = []
        self.spans: list[Span] = []
        self.calls: Counter[str] = Counter()
        self.number = 0
        self.names: list[str] = []  # of every operation
        self._macs = 0  # of the latest operation
        self._stack: list[tuple[str, int, frozenset[int]]] = []
        self._made_by: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor -> node
        self._made_of: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor -> parameter names
        self._positions: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._indices: WeakIdKeyDictionary = WeakIdKeyDictionary()  # those made from the image
        # Tensors of which torch functions show how they were made, from the beginning.
        self._recorded: WeakIdKeyDictionary = WeakIdKeyDictionary(
            dict.fromkeys([*model.parameters(), *model.buffers()], True)
        )
        self._parameters = [name for name, _ in model.named_parameters()]
        for name, parameter in model.named_parameters():
            self._made_of[parameter] = frozenset({name})

    # Nodes.

    def add_images(self, images: Iterable[Tensor]) -> None:
        """Node 0: all tensors that come in; the first with four axes has the grid."""
        self.nodes.append(Node(0, "image", "layout", "", -1, (), None))
        for tensor in images:
            self._made_by[tensor] = 0
            if tensor.ndim == 4 and self.nodes[0].shape is None:
                self.nodes[0].shape = tuple(tensor.shape)
                self._positions[tensor] = raster(tensor.shape)
                self.nodes[0].layout = layout_of(self._positions[tensor], self.batch_size)

    def execute(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Execute an operation and count its arithmetic."""
        with MacCounter() as counter:
            out = func(*args, **kwargs)
        self._macs = counter.macs
        return out

    def after(self, operation: Operation) -> Any:
        """Record the operation as a node, if its result depends on the image."""
        operands = operation.operands
        # A new tensor of the image's shape holds nothing of the image.
        inputs = [] if operation.name in CREATIONS else self.nodes_of(operands)
        operation.data_inputs = len(inputs)
        operation.data_operands = sum(t in self._made_by for t in operands)
        self._record(operation, inputs)
        if all(t in self._recorded or t in self._made_by for t in operands):
            self._recorded.update(dict.fromkeys(operation.made, True))
        self.names.append(operation.name)
        return operation.out

    def _record(self, call: Operation, inputs: Sequence[int]) -> None:
        names = frozenset().union(*(self._made_of.get(t, ()) for t in call.operands))
        chosen = any(t in self._indices for t in call.operands)
        indices = [t for t in call.made if not (t.is_floating_point() or t.is_complex())]
        if inputs or chosen:
            self._indices.update(dict.fromkeys(indices, True))
        # Masks and indices made from the image carry no feature map.
        if not inputs or len(indices) == len(call.made):
            for tensor in call.made if names else ():
                self._made_of[tensor] = names | self._made_of.get(tensor, frozenset())
            return
        positions_of = self._positions.get
        positions = positions_after(call, positions_of, chosen=chosen)
        mixes = mixes_positions(call, positions, positions_of)
        role = "token-mixing" if mixes and call.role == "linear" else call.role
        node = self._add(call.name, role, inputs, call.made, number=call.number)
        node.parameters = tuple(sorted(names))
        node.mixes = mixes
        recurrent = call.name in RECURRENCES
        node.macs = recurrence_macs(call.operands) if recurrent else self._macs
        if call.name == "deform_conv2d":  # which torch's counter does not know
            node.macs = call.made[0].numel() * call.operands[1][0].numel()
        node.geometry = attention_geometry(call, positions_of, self.batch_size)
        if call.name == "softmax":
            axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else -1)
            node.axis = axis if axis < 0 else axis - call.made[0].ndim
        for tensor, place in zip(call.made, positions, strict=True):
            if tensor._base is not None and any(t is tensor for t in call.operands):
                self._made_by[tensor._base] = node.index  # changed in place through a view
            if place is not None and place.index_map.shape == tensor.shape:
                self._positions[tensor] = place
            else:
                self._positions.pop(tensor, None)
        if len(call.made) == 1:
            node.layout = layout_of(self._positions.get(call.made[0]), self.batch_size)
        if node.pooled and node.layout is None and role != "layout":
            placed = [positions_of(t) for t in call.operands]
            node.pools = any(p is not None and p.several for p in placed)

    def _add(
        self,
        name: str,
        role: Role,
        inputs: Sequence[int],
        made: Sequence[Tensor],
        *,
        number: int = -1,
    ) -> Node:
        """A new node that made these tensors."""
        node = Node(
            index=len(self.nodes),
            op=name,
            role=role,
            module=self._stack[-1][0] if self._stack else "",
            call=number,
            inputs=tuple(inputs),
            shape=tuple(made[0].shape) if len(made) == 1 else None,
        )
        self.nodes.append(node)
        for tensor in made:
            self._made_by[tensor] = node.index
        return node

    def nodes_of(self, value: Any) -> list[int]:
        """The nodes that made the tensors in a nesting, each once."""
        tensors = tensors_in(value)
        return list(dict.fromkeys(self._made_by[t] for t in tensors if t in self._made_by))

    def with_levels(self, output: int, levels: Sequence[Tensor], last: Tensor) -> int:
        """The node of the output; one that joins all levels of a pyramid, if there are more."""
        before, left = {output}, [output]
        while left:
            new = set(self.nodes[left.pop()].inputs) - before
            before |= new
            left.extend(new)
        others = [i for i in self.nodes_of(levels) if i not in before]
        if not others:
            return output
        return self._add("levels", "merge", sorted({output, *others}), [last]).index

    # Modules.

    @contextmanager
    def modules(self, model: nn.Module) -> Iterator[None]:
        """Inside, the recorder is informed of every call of a submodule."""
        with ExitStack() as stack:
            for name, module in model.named_modules():
                if name:
                    enter = partial(self.enter, name)
                    hook = module.register_forward_pre_hook(enter, with_kwargs=True)
                    stack.callback(hook.remove)
                    stack.callback(module.register_forward_hook(self.leave).remove)
            yield

    def enter(self, name: str, _module: nn.Module, args: Any, kwargs: Any) -> None:
        """A module is called."""
        call, self.calls[name] = self.calls[name], self.calls[name] + 1
        self._stack.append((name, call, frozenset(self.nodes_of([args, kwargs]))))
        self._address(name, call, "input", {**dict(enumerate(args)), **kwargs})

    def leave(self, _module: nn.Module, _args: Any, output: Any) -> None:
        """A module returns."""
        name, call, inputs = self._stack[-1]
        tensors = tensors_in(output)
        hidden = not all(t in self._recorded for t in tensors)
        depends = name not in self._constant
        if inputs and hidden and depends and not self.nodes_of(tensors):
            node = self._add("opaque", "opaque", sorted(inputs), tensors)
            node.parameters = tuple(p for p in self._parameters if p.startswith(f"{name}."))
        self._stack.pop()
        if isinstance(output, Tensor):
            self._address(name, call, "output", {None: output})
        elif isinstance(output, Mapping):
            self._address(name, call, "output", output)
        elif isinstance(output, tuple | list):
            self._address(name, call, "output", dict(enumerate(output)))
        made = self.nodes_of(tensors)
        self.spans.append(Span(name, inputs, made[0] if len(made) == 1 else None))

    def _address(self, name: str, call: int, side: str, tensors: Mapping[Any, Any]) -> None:
        for key, tensor in tensors.items():
            if isinstance(tensor, Tensor) and tensor in self._made_by:
                address = Address(name, call, side, key)
                self.nodes[self._made_by[tensor]].addresses.append(address)


def later_trace(
    model: nn.Module, images: Images, first: Graph, buffers: Mapping[str, Tensor]
) -> Graph:
    """The graph of a later pass, which does not compute what the first one left in a cache.

    It has the parameters that were read for the cache. `buffers` are those before both passes.
    """
    later, _ = trace(model, images)
    _add_parameters(later, of=first)
    assigned = model.named_buffers(remove_duplicate=False)
    return replace(later, caches={n: t for n, t in assigned if buffers.get(n) is not t})


def _add_parameters(graph: Graph, *, of: Graph) -> None:
    """Give parameters that only `of` reads to the first node of the module that reads them."""
    names = {name for node in graph.nodes for name in node.parameters}
    for node in of.nodes:
        new = set(node.parameters) - names
        same = next((n for n in graph.nodes if n.module == node.module), None)
        if new and same is not None:
            same.parameters = tuple(sorted({*same.parameters, *new}))


def trace(model: nn.Module, images: Images) -> tuple[Graph, list[str]]:
    """Run the model and record its graph, and the names of all its torch functions."""
    graph, names = _trace_once(model, images)
    hidden = {node.module for node in graph.nodes if node.op == "opaque"}
    constant = _constant(model, images, hidden) if hidden else []
    return _trace_once(model, images, constant) if constant else (graph, names)


def _constant(model: nn.Module, images: Images, names: Collection[str]) -> list[str]:
    """Modules whose output is the same for darker images: tables made of cached ones."""

    def outputs(images: Images) -> dict[str, list[Tensor]]:
        made: dict[str, list[Tensor]] = {name: [] for name in names}
        with torch.no_grad(), as_written(), ExitStack() as stack:
            for name, tensors in made.items():
                hook = model.get_submodule(name).register_forward_hook(
                    lambda _module, _args, out, to=tensors: to.extend(
                        map(torch.clone, tensors_in(out))
                    )
                )
                stack.callback(hook.remove)
            forward(model, images)
        return made

    darker = copies_of(images)
    for tensor in tensors_in(darker):
        if tensor.is_floating_point():
            tensor.mul_(0.5)
    before, after = outputs(images), outputs(darker)
    return [n for n in names if all(map(torch.equal, before[n], after[n]))]


def _trace_once(
    model: nn.Module, images: Images, constant: Collection[str] = ()
) -> tuple[Graph, list[str]]:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"{name or 'the model'} must be an nn.Module, got a scripted or traced one, "
                "whose operations cannot be followed. Pass the original one."
            )
    images = copies_of(images)  # the tensors that the model is given
    tensors = tensors_in(images)
    recorder = _Recorder(model, batch_size(images), constant)
    recorder.add_images(tensors)
    outputs: list[list[Tensor]] = []
    hook = model.register_forward_hook(
        lambda module, _args, out: outputs.append(levels_of(out, module))
    )
    with ExitStack() as stack, torch.no_grad(), as_written():
        stack.callback(hook.remove)
        stack.enter_context(recorder.modules(model))
        stack.enter_context(recorder)
        logits = output_of(model, images)
    output = next(iter(recorder.nodes_of(logits)), None)
    if output:
        output = recorder.with_levels(output, outputs[-1], logits)
    if logits.ndim < 3:  # a block where maps are made, and a detail where they are classified
        for node in recorder.nodes:
            node.role = "pointwise" if node.role == "resize" else node.role
    if output == 0:
        raise InputError(
            f"the model must have blocks, and {type(model).__name__} returns its images"
        )
    if output is None:
        raise InputError(
            f"the output of {type(model).__name__} does not depend on the "
            "images as far as torch functions show. Scripted and exported "
            "models cannot be dissected: pass the original nn.Module."
        )
    graph = Graph(
        nodes=tuple(recorder.nodes),
        spans=tuple(recorder.spans),
        calls=dict(recorder.calls),
        output=output,
        batch_size=recorder.batch_size,
    )
    return graph, recorder.names
