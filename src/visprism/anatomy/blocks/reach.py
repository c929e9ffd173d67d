"""Reach: to which positions a block moves information, found by changing one position.

One position of the tensor that comes into a block is changed, and the block's operations run a
second time on what depends on it, next to the model's own pass. Positions that differ at any of
its operations have received information. It is another position in each of two copies of the
image, so that one that happens to be unused decides nothing.

Not counted is what only rescales all positions alike: statistics of a norm, and a pooling to
one vector (a gate as in squeeze-and-excitation). Sliding windows are local by definition, and
are kept from spreading the change, so that the answer is what the rest of the block does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from visprism.anatomy.blocks.segments import Segment
from visprism.anatomy.trace.forward import Images, as_written, copies_of, output_of
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operation_counter import OperationCounter
from visprism.anatomy.trace.operations import WINDOWS, Operation, in_place, tensors_in
from visprism.anatomy.trace.token_positions import Layout

# In the order of how far information goes; "unknown" where the probe could not run.
Reach = Literal["unknown", "none", "local", "causal", "global"]
Grid = tuple[int, int]  # (height, width)
_ORDER: tuple[Reach, ...] = ("unknown", "none", "local", "causal", "global")
_PLACES = (2, 3)  # the changed position of each copy: rows and columns divided by these
_ROUNDING = 1e-5  # of the largest number: smaller differences are none
_NEXT = 3  # positions that a causal block reaches at least; a shift moves to one
_MOST = 0.5  # of the positions: a block that reaches more of them is global


def reaches_of(
    model: nn.Module, images: Images, graph: Graph, row: Sequence[Segment]
) -> tuple[list[Reach], list[str]]:
    """The reach of each segment, and the names of all operations; costs about two passes."""
    probe, images = _Probe(graph, row), copies_of(images)
    for tensor in tensors_in(images):
        if tensor.ndim == 4 and not (tensor.isfinite().all() and tensor.std() > 0):
            noise = torch.rand(tensor.shape[1:], generator=torch.Generator().manual_seed(0))
            tensor.copy_(noise)  # of an empty image nothing can be learned
    with torch.no_grad(), as_written(), probe:
        output_of(model, images)
    return probe.reaches, probe.names


class _Probe(OperationCounter):
    """Runs the operations of each segment on a changed input, next to the pass itself."""

    def __init__(self, graph: Graph, row: Sequence[Segment]) -> None:
        super().__init__()
        self.number = 0
        self.names: list[str] = []
        self.reaches: list[Reach] = ["unknown"] * len(row)
        self._nodes = {node.call: node for node in graph.nodes if node.call >= 0}
        self._segments = {n.call: i for i, part in enumerate(row) for n in part.nodes}
        self._begins: dict[int, list[int]] = {}  # segments, by the operation that they follow
        for i, part in enumerate(row):
            if part.start and not any(n.role == "opaque" for n in part.nodes):
                start = graph.nodes[readable(graph, part.start)]
                self._begins.setdefault(start.call, []).append(i)
        self._ends = {part.nodes[-1].call: i for i, part in enumerate(row)}
        # By segment: tensors of the pass, and what they are after the change.
        self._changed: dict[int, WeakIdKeyDictionary] = {}
        # By segment: the grid that comes in, and the coarsest one so far.
        self._grids: dict[int, tuple[Grid, Grid]] = {}
        self._made: list[Tensor] = []  # by the latest operation, of changed operands

    def execute(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Execute an operation, and before it the same with changed operands, if any is."""
        self._made, number = [], self.number or 0
        operands = tensors_in([args, kwargs]) if self._changed else []
        segment = self._segment_of(number, operands)
        if segment is None:
            return func(*args, **kwargs)
        node, changed, first = self._nodes[number], self._changed[segment], operands[0]
        try:
            if first not in changed and in_place(func):
                changed[first] = first.clone()
            same = _unchanged(node, first, changed)
            new_args, new_kwargs = _exchanged([args, dict(kwargs)], changed)
            new = func(*new_args, **new_kwargs)
            self._made = tensors_in(new_args[0] if node.op == "__setitem__" else new)
        except Exception:  # whatever a torch function raises for other values
            del self._changed[segment]
            self.reaches[segment] = "unknown"
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if node.pools:
            self._made = []
        elif same is not None and isinstance(out, Tensor):
            self._made = [_confined(out, self._made[0], same)]
        return out

    def after(self, operation: Operation) -> Any:
        """Keep what was changed, see which positions differ, and begin the next segments."""
        self.names.append(operation.name)
        number, made = operation.number, operation.made
        node = self._nodes.get(number)
        if node and (node.op, node.shape or made[0].shape) != (operation.name, made[0].shape):
            self._changed.clear()  # another pass than the one that was traced
            self._begins.clear()
        segment = self._segment_of(number, operation.operands)
        if segment is not None and node is not None:
            self._changed[segment].update(zip(made, self._made, strict=False))
            if self._made:
                self._see(segment, node, made[0])
        self._changed.pop(self._ends.get(number, -1), None)
        for begun in self._begins.get(number, ()):
            layout, x = self._nodes[number].layout, made[0]
            if layout is not None and x.is_floating_point() and min(layout.grid) > 1:
                self._grids[begun] = layout.grid, layout.grid
                self._changed[begun] = WeakIdKeyDictionary({x: _with_change(x, layout)})
        return operation.out

    def _segment_of(self, number: int, operands: Sequence[Tensor]) -> int | None:
        """The segment that an operation is run in once more, as it has changed operands.

        One whose result the trace does not follow, such as of a view that is changed in place,
        is in whichever segment its operands are.
        """
        segments = self._changed.keys() & {self._segments.get(number, -1)}
        if number not in self._segments:
            segments = set(self._changed)
        hit = (i for i in segments if any(t in self._changed[i] for t in operands))
        return next(hit, None) if number in self._nodes else None

    def _see(self, segment: int, node: Node, out: Tensor) -> None:
        """Note the reach at an operation; the last one's counts where anything arrives there.

        Nothing does where the block's branch is still multiplied by zero.
        """
        if node.layout is None or node.role == "softmax" or not out.is_floating_point():
            return
        came, coarsest = self._grids[segment]
        if node.role in {"conv", "pool"}:
            coarsest = tuple(map(min, coarsest, node.layout.grid))
            self._grids[segment] = came, coarsest
        where = node.layout.to_map(_differs(out, self._made[0])).any(1)
        ordered = node.layout.grid == came == coarsest
        found = max(
            (_reach(w, coarsest, i, ordered=ordered) for i, w in enumerate(where)),
            key=_ORDER.index,
        )
        if node.call not in self._ends or found not in {"local", "causal", "global"}:
            found = max(self.reaches[segment], found, key=_ORDER.index)
        self.reaches[segment] = found


def readable(graph: Graph, end: int) -> int:
    """The cut itself, or a reshaped copy of it that a hook can read."""
    at = end
    while not graph.nodes[at].addresses:
        after = [n for n in graph.nodes if at in n.inputs]
        if len(after) != 1 or after[0].role != "layout" or after[0].layout is None:
            return end
        at = after[0].index
    return at


def _exchanged(value: Any, changed: Mapping[Tensor, Tensor]) -> Any:
    """A nesting with its tensors exchanged where they are changed."""
    if isinstance(value, Tensor):
        return changed.get(value, value)
    if isinstance(value, Mapping):
        return {name: _exchanged(part, changed) for name, part in value.items()}
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return type(value)([_exchanged(part, changed) for part in value])
    return value


def _place(grid: Grid, copy: int) -> int:
    """The changed position of a copy of the image, row by row."""
    return grid[0] // _PLACES[copy] * grid[1] + grid[1] // _PLACES[copy]


def _with_change(x: Tensor, layout: Layout) -> Tensor:
    """A tensor with another position changed in each image."""
    x = x.detach().clone(memory_format=torch.contiguous_format)
    tokens = layout.tokens(x)  # a view
    size = 3 * float(x.detach().std()) or 1.0
    pattern = size * torch.linspace(1, 40, tokens.shape[-1], device=x.device).sin().to(x.dtype)
    for copy in range(len(_PLACES)):
        place = _place(layout.grid, copy)
        at = layout.order[place] if layout.order else layout.num_prefix_tokens + place
        tokens[copy, at] += pattern
    return x


def _unchanged(node: Node, x: Tensor, changed: Mapping[Tensor, Tensor]) -> Tensor | None:
    """Where the operand of a window, norm or softmax is as it was; None for other work."""
    windows = node.role in {"conv", "pool", "global pool"} or node.op in WINDOWS
    if x not in changed or not (windows or node.role in {"norm", "softmax"}):
        return None
    same = ~_differs(x, changed[x])
    return same.all(1, keepdim=True) if windows else same


def _differs(x: Tensor, new: Tensor) -> Tensor:
    """Where two tensors differ by more than rounding, which depends on the order of memory."""
    return (new - x).abs() > _ROUNDING * x.abs().max()


def _confined(out: Tensor, new: Tensor, same: Tensor) -> Tensor:
    """The changed result where it came from changed positions, else the result of the pass."""
    axes = same.ndim - 2
    if same.shape[1:] != out.shape[1:] and out.ndim == same.ndim and axes in _MAX_POOLS:
        at, sides = (~same).to(torch.float32), list(out.shape[2:])
        more = [b - a for a, b in zip(same.shape[2:], sides, strict=True)]
        if all(2 * abs(m) < n for m, n in zip(more, same.shape[2:], strict=True)):
            # Without a stride; a row of tokens that becomes longer is cropped at its end.
            front = [0 if axes == 1 and m > 0 else m // 2 for m in more]
            pads = [(f, m - f) for f, m in zip(reversed(front), reversed(more), strict=True)]
            at = functional.pad(at, [n for pair in pads for n in pair])
        else:
            at = _MAX_POOLS[axes](at, sides)
        return torch.where(at > 0, new, out)
    return torch.where(same, out, new) if same.shape == out.shape else new


_MAX_POOLS: dict[int, Callable[..., Tensor]] = {
    1: functional.adaptive_max_pool1d,
    2: functional.adaptive_max_pool2d,
    3: functional.adaptive_max_pool3d,
}


def _reach(differs: Tensor, coarsest: Grid, copy: int, *, ordered: bool) -> Reach:
    """The reach from the positions (H, W) that differ in one copy.

    Where the block goes through a coarser grid, one position is several. `ordered`: the grid is
    the one that came in, so that positions before the changed one are known.
    """
    grid = differs.shape[0], differs.shape[1]
    own = [1 if ordered else -(-a // b) + 1 for a, b in zip(grid, coarsest, strict=True)]
    sides = [int(differs.any(axis).sum()) for axis in (1, 0)]
    if sides[0] <= own[0] and sides[1] <= own[1]:
        return "none" if sides[0] else "unknown"
    place, flat = _place(grid, copy), differs.flatten()
    if ordered and not flat[:place].any() and flat[place + 1 : place + 1 + _NEXT].all():
        return "causal"
    return "global" if flat.float().mean() > _MOST else "local"
