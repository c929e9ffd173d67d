"""Stretches: neighbouring units of a graph put together to what people call a block.

1. Ways joined by a sum (a residual branch, with its skip) are a block, with the norm or the
   activation that the same module has before or after them. Ways joined otherwise (dense
   blocks, inception modules) are a block with the layers that fuse them in the same module.
2. A module whose name differs only in numbers from such a block's (``features.3`` and
   ``features.4``) is a block too, if it lies between two cuts: bottlenecks without a skip.
3. What is left between two blocks is one block: the stem, a downsampling, the head. In a
   network without any of the above each operation with weights or a window is a block, with the
   norm, activation and dropout that follow it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from visprism.anatomy.blocks.cuts import CutSegment, units
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import WORK


@dataclass(frozen=True)
class Segment:
    """Neighbouring units that make one block."""

    units: tuple[CutSegment, ...]
    module: str = ""  # the module that is exactly this stretch, if there is one

    @property
    def end(self) -> int:
        """The cut after it."""
        return self.units[-1].end

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes, in forward order."""
        return tuple(node for unit in self.units for node in unit.nodes)

    @property
    def works(self) -> bool:
        """Whether any of its units works."""
        return any(unit.works for unit in self.units)

    @property
    def branches(self) -> bool:
        """Whether it has several ways."""
        return any(unit.type == "branches" for unit in self.units)


@dataclass(frozen=True)
class _Range:
    """Units ``first ... after - 1``; `module` is the module that they are exactly."""

    first: int
    after: int
    module: str = ""

    def __len__(self) -> int:
        return self.after - self.first

    def meets(self, other: "_Range") -> bool:
        """Whether the two have a unit in common."""
        return self.first < other.after and other.first < self.after


def segments(graph: Graph) -> list[Segment]:
    """The row of segments from the image to the logits; the last is the head."""
    row = units(graph)
    modules = _modules(graph, row)
    found = _by_pattern(_branches(row, modules), modules, row)
    return _with_tail(graph, _with_neighbours(_with_gaps(graph, found, row)))


def has_head(graph: Graph, row: Sequence[Segment]) -> bool:
    """Whether the last stretch is a head; in a backbone it is a block that gives a map."""
    return graph.nodes[row[-1].end].layout is None or not row[-1].works


def _modules(graph: Graph, row: Sequence[CutSegment]) -> list[_Range]:
    """Calls of modules that begin and end at a cut, as ranges of units."""
    begins = {unit.start: i for i, unit in enumerate(row)}
    ends = {unit.end: i + 1 for i, unit in enumerate(row)}
    ranges = [
        _Range(begins[min(span.inputs)], ends[span.output], span.module)
        for span in graph.spans
        if len(span.inputs) == 1 and min(span.inputs) in begins and span.output in ends
    ]
    return [r for r in ranges if len(r) > 0]


def _branches(row: Sequence[CutSegment], modules: Sequence[_Range]) -> list[_Range]:
    """Rule 1: each unit with several ways, with what its module has around it."""
    found = []
    for i, unit in enumerate(row):
        if unit.type == "branches":
            around = [m for m in modules if m.first <= i < m.after]
            if unit.residual:
                fits = [m for m in around if sum(u.works for u in row[m.first : m.after]) == 1]
                best = max(fits, key=lambda m: (len(m), len(m.module)), default=None)
            else:
                fits = [m for m in around if _is_fusion(row, m, i)]
                best = min(fits, key=lambda m: (len(m), -len(m.module)), default=None)
                exact = [m for m in around if len(m) == 1]
                best = best or max(exact, key=lambda m: len(m.module), default=None)
            found.append(best or _Range(i, i + 1))
    return found


def _is_fusion(row: Sequence[CutSegment], module: _Range, i: int) -> bool:
    """Whether a module joins several ways in unit `i` and then works on what was joined."""
    before, after = row[module.first : i], row[i + 1 : module.after]
    works_after = any(u.works for u in after)
    return works_after and not any(u.works for u in before) and not _ways(after)


def _ways(some_units: Sequence[CutSegment]) -> int:
    return sum(unit.type == "branches" for unit in some_units)


def _by_pattern(
    found: Sequence[_Range], modules: Sequence[_Range], row: Sequence[CutSegment]
) -> list[_Range]:
    """Rule 2: modules called like the blocks that were found; the largest first."""
    patterns = {_pattern(r.module) for r in found if r.module}
    fixed = [r for r in found if r.module and any(u.residual for u in row[r.first : r.after])]
    loose = [r for r in found if r not in fixed]
    for module in sorted(modules, key=len, reverse=True):
        inside = row[module.first : module.after]
        # Two sums inside are two blocks: the attention and the mlp of a transformer's.
        one = sum(unit.residual for unit in inside) < 2 and any(unit.works for unit in inside)
        if _pattern(module.module) in patterns and one and not any(map(module.meets, fixed)):
            fixed.append(module)
    loose = [r for r in loose if not any(map(r.meets, fixed))]
    return sorted(fixed + loose, key=lambda r: r.first)


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def _with_gaps(
    graph: Graph, found: Sequence[_Range], row: Sequence[CutSegment]
) -> list[Segment]:
    """Rule 3: what lies between the blocks that were found."""
    result: list[Segment] = []
    at = 0
    for block in [*found, _Range(len(row), len(row))]:
        result = _with_gap(graph, result, row[at : block.first], plain=not found)
        if len(block):
            result.append(Segment(tuple(row[block.first : block.after]), block.module))
        at = block.after
    return result


def _with_gap(
    graph: Graph, before: list[Segment], gap: Sequence[CutSegment], *, plain: bool
) -> list[Segment]:
    """The row with one gap added; an activation after a residual sum belongs to the sum."""
    first = 0
    while before and first < len(gap) and gap[first].nodes[-1].role == "activation":
        first += 1
    if first:
        before = [*before[:-1], replace(before[-1], units=(*before[-1].units, *gap[:first]))]
    parts: list[list[CutSegment]] = [[]]
    for unit in gap[first:]:
        next_work = plain and unit.type == "work" and any(u.works for u in parts[-1])
        if next_work or _pools(graph, unit):
            parts.append([])
        parts[-1].append(unit)
    return before + [Segment(tuple(part)) for part in parts if part]


def _pools(graph: Graph, unit: CutSegment) -> bool:
    """Whether a unit takes the feature map together to one vector, as a head begins."""
    begins = graph.nodes[unit.end].pooled and not graph.nodes[unit.start].pooled
    return begins or unit.nodes[-1].role == "global pool"


def _with_neighbours(row: Sequence[Segment]) -> list[Segment]:
    """Light segments (norms, changes of layout) joined to the block that they prepare."""
    result: list[Segment] = []
    waiting: tuple[CutSegment, ...] = ()
    for stretch in row:
        if stretch.works:
            result.append(replace(stretch, units=waiting + stretch.units))
            waiting = ()
        else:
            waiting += stretch.units
    if waiting:
        result.append(Segment(waiting))
    return result


def _with_tail(graph: Graph, row: list[Segment]) -> list[Segment]:
    """The last segments as one head: what is pooled, or pointwise and without a skip.

    Not if they do the same work as a stretch before, in modules that are called alike; nor
    where there is no head, as the last stretch gives a feature map.
    """
    if not has_head(graph, row):
        return row

    def belongs_to_head(stretch: Segment) -> bool:
        end = graph.nodes[stretch.end]
        roles = {node.role for node in stretch.nodes}
        pointwise = not stretch.branches and not roles & (WORK - {"linear"})
        alike = any(_work(stretch) == _work(other) for other in row[:-2])
        return (pointwise and not alike) or (end.layout is None and end.pooled)

    while len(row) > 2 and belongs_to_head(row[-2]):
        row = [*row[:-2], Segment(row[-2].units + row[-1].units)]
    return row


def _work(stretch: Segment) -> set[tuple[str, str]]:
    """What the works of a stretch are, and what their modules are called, numbers apart."""
    return {(_pattern(n.module), n.role) for n in stretch.nodes if n.role in WORK}
