"""Dissection: any model as a row of blocks, found in its graph.

Stretches between neighbouring cuts (`visprism.anatomy.cuts`) are put together to blocks:

1. Branches joined by a sum or a concatenation are a block, with the norm or activation that the
   same module has before or after them.
2. A module whose name differs only in numbers from a block's (``features.3`` and ``features.4``)
   is a block too, if it lies between two cuts: bottlenecks without a skip.
3. What is left between two blocks is one block: the stem, a downsampling, the head. In a network
   without branches each operation with weights or a window is a block, with the norm,
   activation and dropout that follow it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from torch import Tensor, nn

from visprism.anatomy.blocks import Anatomy, Block, Kind
from visprism.anatomy.cuts import Unit, units
from visprism.anatomy.forward import Images
from visprism.anatomy.graph import Graph, Node, Span, trace
from visprism.anatomy.kinds import kind_of
from visprism.anatomy.naming import names_of
from visprism.anatomy.operations import WORK, tensors_in
from visprism.errors import InputError

# Two images tell an axis of length 1 from the batch's; more would only cost time.
_IMAGES = 2


@dataclass(frozen=True)
class Stretch:
    """Neighbouring units that make one block."""

    units: tuple[Unit, ...]
    span: str | None = None  # the module that is exactly this stretch

    @property
    def start(self) -> int:
        return self.units[0].start

    @property
    def end(self) -> int:
        return self.units[-1].end

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for unit in self.units for node in unit.nodes)

    @property
    def works(self) -> bool:
        return any(unit.type != "light" for unit in self.units)

    @property
    def branches(self) -> bool:
        return any(unit.type == "branches" for unit in self.units)


def dissect(model: nn.Module, images: Images) -> Anatomy:
    """Take a model apart into blocks, by itself.

    Costs one forward pass of two images, traced. The kind of a block comes from what moves
    information over the grid in it (attention, convolution, token mixing, or nothing: mlp), its
    stage from the size of the grid. Nothing depends on names or classes.

    Args:
        model: any image classifier, in evaluation mode; it is not changed.
        images: a batch (B, C, H, W), or a mapping of tensors for models that take one.

    Raises:
        InputError: if the model is in training mode, fails on the images, or its output does not
            depend on them.
    """
    if any(m.training for m in model.modules()):
        raise InputError("the model is in training mode; call model.eval() first")
    graph = trace(model, _first(images))
    stretches = _stretches(graph, units(graph))
    return Anatomy(model, _blocks(graph, stretches), graph)


def _first(images: Images) -> Images:
    if isinstance(images, Tensor):
        return images[:_IMAGES]
    if not tensors_in(images):
        raise InputError("no images: wanted a tensor (B, C, H, W) or a mapping of tensors")
    return {name: value[:_IMAGES] for name, value in images.items()}


# From units to stretches.


def _stretches(graph: Graph, all_units: Sequence[Unit]) -> list[Stretch]:
    position = {unit.start: i for i, unit in enumerate(all_units)}
    ends = {unit.end: i + 1 for i, unit in enumerate(all_units)}
    spans = [
        (span, position[start], ends[span.output])
        for span in graph.spans
        if len(span.inputs) == 1
        and (start := min(span.inputs)) in position
        and span.output in ends
        and position[start] < ends[span.output]
    ]
    taken: dict[int, tuple[int, str | None]] = {}  # first unit -> (unit after the last, module)
    for i, unit in enumerate(all_units):
        if unit.type == "branches":
            first, last, name = _around(i, spans, all_units)
            taken[first] = (last, name)
    patterns = {_pattern(name) for _, name in taken.values() if name}
    for span, first, last in sorted(spans, key=lambda s: s[1] - s[2]):
        overlaps = any(a < last and first < b for a, (b, _) in taken.items())
        works = any(unit.type == "work" for unit in all_units[first:last])
        if _pattern(span.module) in patterns and works and not overlaps:
            taken[first] = (last, span.module)
    return _with_rest(all_units, taken)


def _around(
    i: int, spans: Sequence[tuple[Span, int, int]], all_units: Sequence[Unit]
) -> tuple[int, int, str | None]:
    """The largest module that has no other work than unit `i`, or the unit alone."""
    best: tuple[int, int, str | None] = (i, i + 1, None)
    for span, first, last in spans:
        others = [u for j, u in enumerate(all_units[first:last], first) if j != i]
        if first <= i < last and all(u.type == "light" for u in others):
            larger = last - first > best[1] - best[0]
            deeper = last - first == best[1] - best[0] and len(span.module) > len(best[2] or "")
            if larger or deeper:
                best = (first, last, span.module)
    return best


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def _with_rest(
    all_units: Sequence[Unit], taken: dict[int, tuple[int, str | None]]
) -> list[Stretch]:
    """Fill the gaps between the blocks that were found."""
    plain = not taken
    found: list[Stretch] = []
    rest: list[Unit] = []

    def close() -> None:
        if rest:
            found.extend(_gap(tuple(rest), found, plain=plain))
            rest.clear()

    i = 0
    while i < len(all_units):
        if i in taken:
            close()
            after, name = taken[i]
            found.append(Stretch(tuple(all_units[i:after]), name))
            i = after
        else:
            rest.append(all_units[i])
            i += 1
    close()
    return found


def _gap(gap: tuple[Unit, ...], before: list[Stretch], *, plain: bool) -> list[Stretch]:
    """Stretches of the units between two blocks; light ones join the block before."""
    if not plain:
        activations = 0
        while activations < len(gap) and gap[activations].nodes[-1].role == "activation":
            activations += 1
        if before and activations:
            before[-1] = replace(before[-1], units=before[-1].units + gap[:activations])
        gap = gap[activations:]
        return [Stretch(gap)] if gap else []
    stretches: list[list[Unit]] = [[]]
    for unit in gap:
        worked = any(u.type != "light" for u in stretches[-1])
        if unit.type == "work" and worked:
            stretches.append([])
        stretches[-1].append(unit)
    return [Stretch(tuple(s)) for s in stretches]


# From stretches to blocks.


def _blocks(graph: Graph, stretches: list[Stretch]) -> tuple[Block, ...]:
    stretches = _joined(graph, stretches)
    names = names_of(graph, [s.nodes for s in stretches], [s.span for s in stretches])
    blocks: list[Block] = []
    stage, area = 0, None
    for i, stretch in enumerate(stretches):
        end = graph.nodes[_readable(graph, stretch.end)]
        last = i == len(stretches) - 1
        layout = None if last else end.layout
        here = prod(layout.grid) if layout else None
        subsampling = bool(area and here and here < area)
        if i == 1 or (i > 1 and subsampling and not last):
            stage += 1
        kind = _kind(graph, stretch, first=i == 0, last=last, subsampling=subsampling)
        shape = tuple(end.shape or ())[1:]
        if layout is not None:
            shape = (shape[0] if layout.axes == "b c h w" else shape[-1], *layout.grid)
        blocks.append(
            Block(
                name=names[i],
                kind=kind,
                stage=stage,
                depth=min(1.0, i / max(1, len(stretches) - 2)),
                subsampling=subsampling,
                shape=shape,
                layout=layout,
                parameters=tuple(sorted({p for n in stretch.nodes for p in n.parameters})),
                start=blocks[-1].end if blocks else 0,
                end=end.index,
            )
        )
        area = here or area
    return tuple(blocks)


def _readable(graph: Graph, end: int) -> int:
    """The cut itself, or the same numbers in another shape where a hook can read only those."""
    at = end
    while not graph.nodes[at].addresses:
        after = [n for n in graph.nodes if at in n.inputs]
        if len(after) != 1 or after[0].role != "layout" or after[0].layout is None:
            return end
        at = after[0].index
    return at


def _kind(
    graph: Graph, stretch: Stretch, *, first: bool, last: bool, subsampling: bool
) -> Kind:
    if last:
        return "head"
    if first:
        return "stem"
    if subsampling and not stretch.branches and stretch.span is None:
        return "downsample"
    return kind_of(graph, stretch.nodes)


def _joined(graph: Graph, stretches: list[Stretch]) -> list[Stretch]:
    """Light stretches joined to their neighbours, and the tail joined to one head."""
    kept: list[Stretch] = []
    for stretch in stretches:
        if kept and not stretch.works and not kept[-1].works:
            kept[-1] = Stretch(kept[-1].units + stretch.units)
        else:
            kept.append(stretch)
    # Light units between two blocks prepare the second (norms, changes of layout).
    for i in range(len(kept) - 2, -1, -1):
        if not kept[i].works:
            kept[i : i + 2] = [replace(kept[i + 1], units=kept[i].units + kept[i + 1].units)]
    while len(kept) > 2 and _is_tail(graph, kept[-2]):
        kept[-2:] = [Stretch(kept[-2].units + kept[-1].units)]
    return kept


def _is_tail(graph: Graph, stretch: Stretch) -> bool:
    """Whether a stretch belongs to the head: off the grid, or pointwise and without a skip."""
    if graph.nodes[stretch.end].layout is None:
        return not _grid_follows(graph, stretch)
    roles = {n.role for n in stretch.nodes}
    return not stretch.branches and not roles & (WORK - {"linear"})


def _grid_follows(graph: Graph, stretch: Stretch) -> bool:
    """Whether the feature map comes back on a grid after this stretch."""
    used = graph.ancestors(graph.output)
    return any(n.layout is not None for n in graph.nodes[stretch.end + 1 :] if n.index in used)
