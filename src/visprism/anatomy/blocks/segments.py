"""Segments: neighboring parts of a graph merged to blocks.

1. Paths joined by a sum (a residual branch, with its skip) are a block, with the norm or the
   activation that the same module has before or after them. Paths joined otherwise (dense
   blocks, inception modules) are a block with the layers that fuse them in the same module.
2. A module whose name differs only in numbers from such a block's (``features.3`` and
   ``features.4``) is a block too, if it lies between two cuts: bottlenecks without a skip.
3. What is left between two blocks is one block: the stem, a downsampling, the head. In a
   network without any of the above each operation with weights or a window is a block, with the
   padding before it, and the norm, activation and dropout that follow it.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from visprism.anatomy.blocks.cuts import CutSegment, cut_segments
from visprism.anatomy.blocks.streams import Path, split_streams
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import CONVOLUTIONS, WORK


@dataclass(frozen=True)
class Segment:
    """Neighboring parts that form one block."""

    parts: tuple[CutSegment, ...]
    module: str = ""  # the module that is exactly this segment, if there is one
    stream: int = 0

    @property
    def start(self) -> int:
        """The cut before it."""
        return self.parts[0].start

    @property
    def end(self) -> int:
        """The cut after it."""
        return self.parts[-1].end

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes, in forward order."""
        return tuple(node for part in self.parts for node in part.nodes)

    @property
    def has_work(self) -> bool:
        """Whether any of its parts works."""
        return any(part.has_work for part in self.parts)

    @property
    def branches(self) -> bool:
        """Whether it has several paths."""
        return any(part.type == "branches" for part in self.parts)


@dataclass(frozen=True)
class _Range:
    """Parts ``first ... after - 1``; `module` is the module that they are exactly."""

    first: int
    after: int
    module: str = ""

    def __len__(self) -> int:
        return self.after - self.first

    def meets(self, other: "_Range") -> bool:
        """Whether the two have a part in common."""
        return self.first < other.after and other.first < self.after


def segments(graph: Graph) -> list[Segment]:
    """The segments from the image to the logits, in forward order; the last is the head."""
    result: list[Segment] = []
    row: list[CutSegment] = []
    used = sorted(graph.ancestors(graph.output) - {0})
    for part in cut_segments(graph, 0, used):
        split = split_streams(graph, part)
        if split is not None:
            result += _of_path(graph, Path(tuple(row), 0)) if row else []
            paths, part = split
            result += _numbered_on(paths, result, graph)
            row = []
        row.append(part)
    return _with_tail(graph, [*result, *_of_row(graph, row)])


def _of_path(graph: Graph, path: Path) -> list[Segment]:
    """The segments of a path; what has no weights at its end belongs to the last of them."""
    row = [Segment(path.row)] if path.one_block else _of_row(graph, path.row)
    if len(row) > 1 and not row[-1].has_work:
        row = [*row[:-2], replace(row[-2], parts=row[-2].parts + row[-1].parts)]
    return [replace(segment, stream=path.stream) for segment in row]


def _numbered_on(
    paths: Sequence[Path], before: Sequence[Segment], graph: Graph
) -> list[Segment]:
    """The segments of paths in forward order, their streams numbered on from those before."""
    count = max((segment.stream for segment in before), default=0)
    result = [
        segment
        for path in paths
        for segment in _of_path(
            graph, replace(path, stream=path.stream and path.stream + count)
        )
    ]
    return sorted(result, key=lambda segment: segment.end)


def _of_row(graph: Graph, row: Sequence[CutSegment]) -> list[Segment]:
    """The segments of a row of neighboring parts."""
    modules = _modules(graph, row)
    ranges = _by_pattern(_branches(row, modules), modules, row, repeated=_repeated(graph))
    return _with_neighbors(graph, _with_gaps(graph, ranges, row))


def has_head(graph: Graph, row: Sequence[Segment]) -> bool:
    """Whether the last segment is a head; in a backbone it is a block that gives a map.

    A map that comes right out of a convolution, without a norm or a skip, is a head's too: the
    logits of each pixel.
    """
    if graph.nodes[row[-1].end].layout is None or not row[-1].has_work:
        return True
    nodes = row[-1].nodes
    works = [i for i, n in enumerate(nodes) if n.role in WORK - {"resize"}]
    after = nodes[works[-1] + 1 :] if works else ()
    plain = all(n.role in {"layout", "resize", "softmax"} or n.op == "sigmoid" for n in after)
    last = bool(works) and nodes[works[-1]].op in CONVOLUTIONS
    return len(row) > 1 and last and plain and not row[-1].branches


def _modules(graph: Graph, row: Sequence[CutSegment]) -> list[_Range]:
    """Calls of modules that begin and end at a cut, as ranges of parts."""
    begins = {part.start: i for i, part in enumerate(row)}
    ends = {part.end: i + 1 for i, part in enumerate(row)}
    ranges = [
        _Range(begins[min(span.inputs)], ends[span.output], span.module)
        for span in graph.spans
        if len(span.inputs) == 1 and min(span.inputs) in begins and span.output in ends
    ]
    return [r for r in ranges if len(r) > 0]


def _branches(row: Sequence[CutSegment], modules: Sequence[_Range]) -> list[_Range]:
    """Rule 1: each part with several paths, with what its module has around it."""
    ranges = []
    for i, part in enumerate(row):
        if part.type == "branches":
            around = [m for m in modules if m.first <= i < m.after]
            if part.residual:
                fits = [m for m in around if _work_count(row[m.first : m.after]) == 1]
                best = max(fits, key=lambda m: (len(m), len(m.module)), default=None)
            else:
                fits = [m for m in around if _is_fusion(row, m, i)]
                best = min(fits, key=lambda m: (len(m), -len(m.module)), default=None)
                exact = [m for m in around if len(m) == 1]
                best = best or max(exact, key=lambda m: len(m.module), default=None)
            ranges.append(best or _Range(i, i + 1))
    return ranges


def _is_fusion(row: Sequence[CutSegment], module: _Range, i: int) -> bool:
    """Whether a module joins several paths in part `i` and then works on what was joined."""
    before, after = row[module.first : i], row[i + 1 : module.after]
    worked_before, works_after = (any(u.has_work for u in part) for part in (before, after))
    return works_after and not worked_before and all(u.type != "branches" for u in after)


def _work_count(parts: Sequence[CutSegment]) -> int:
    return sum(part.has_work for part in parts)


def _by_pattern(
    blocks: Sequence[_Range],
    modules: Sequence[_Range],
    row: Sequence[CutSegment],
    *,
    repeated: Collection[str],
) -> list[_Range]:
    """Rule 2: modules called like the blocks that were found; the largest first.

    Where nothing was found, modules of a dense network that work twice (double convolutions).
    """
    twice = [m.module for m in modules if _work_count(row[m.first : m.after]) in {2, 3}]
    found = [r.module for r in blocks if r.module] or [m for m in twice if m in repeated]
    patterns = set(map(_pattern, found))
    fixed = [r for r in blocks if r.module and any(u.residual for u in row[r.first : r.after])]
    loose = [r for r in blocks if r not in fixed]
    for module in sorted(modules, key=len, reverse=True):
        inside = row[module.first : module.after]
        # Two sums inside are two blocks: the attention and the mlp of a transformer's.
        one = sum(part.residual for part in inside) < 2 and _work_count(inside) > 0
        if _pattern(module.module) in patterns and one and not any(map(module.meets, fixed)):
            fixed.append(module)
    loose = [r for r in loose if not any(map(r.meets, fixed))]
    return sorted(fixed + loose, key=lambda r: r.first)


def _repeated(graph: Graph) -> set[str]:
    """Modules of a dense network (one that gives a map) whose names differ only in numbers."""
    if graph.nodes[graph.output].layout is None:
        return set()
    counts = Counter(map(_pattern, graph.calls))
    return {name for name in graph.calls if counts[_pattern(name)] > 1}


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def _with_gaps(
    graph: Graph, blocks: Sequence[_Range], row: Sequence[CutSegment]
) -> list[Segment]:
    """Rule 3: what lies between the blocks that were found."""
    result: list[Segment] = []
    at = 0
    for block in [*blocks, _Range(len(row), len(row))]:
        result = _with_gap(graph, result, row[at : block.first], plain=not blocks)
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
        before = [*before[:-1], replace(before[-1], parts=(*before[-1].parts, *gap[:first]))]
    groups: list[list[CutSegment]] = [[]]
    for part in gap[first:]:
        next_work = plain and part.type == "work" and any(u.has_work for u in groups[-1])
        if next_work or _pools(graph, part):
            # Padding belongs to the operation that it is made for.
            last = groups[-1]
            at = len(last) - len(list(takewhile(_pads, reversed(last))))
            groups[-1:] = [last[:at], last[at:]]
        groups[-1].append(part)
    return before + [Segment(tuple(group)) for group in groups if group]


def _pads(part: CutSegment) -> bool:
    return part.nodes[-1].op == "pad"


def _pools(graph: Graph, part: CutSegment) -> bool:
    """Whether a part takes the feature map together to one vector, as a head begins."""
    begins = graph.nodes[part.end].pooled and not graph.nodes[part.start].pooled
    return begins or part.nodes[-1].role == "global pool"


def _with_neighbors(graph: Graph, row: Sequence[Segment]) -> list[Segment]:
    """Segments without weights (norms, layouts) joined to the block that they prepare.

    The insertion of class tokens is a separate segment: the attention behind it keeps the
    shape of what comes in.
    """
    result: list[Segment] = []
    waiting: tuple[CutSegment, ...] = ()
    for segment in row:
        if segment.has_work:
            result.append(replace(segment, parts=waiting + segment.parts))
            waiting = ()
        elif _off_grid(graph, segment.end) > _off_grid(graph, segment.start):
            result.append(Segment(waiting + segment.parts, "tokens"))
            waiting = ()
        else:
            waiting += segment.parts
    if waiting:
        result.append(Segment(waiting))
    return result


def _off_grid(graph: Graph, node: int) -> int:
    """The number of tokens off the grid."""
    layout = graph.nodes[node].layout
    return layout.num_prefix_tokens + layout.num_suffix_tokens if layout is not None else 0


def _with_tail(graph: Graph, row: list[Segment]) -> list[Segment]:
    """The last segments as one head: what is pooled, or pointwise and without a skip.

    Not if they do the same work as a segment before, in modules with names that differ only in
    numbers; nor where there is no head, as the last segment gives a feature map. Operations
    that only move the numbers of this map belong to its block.
    """
    moved = all(node.role in {"layout", "resize"} for node in row[-1].nodes)
    if moved and len(row) > 1 and graph.nodes[row[-1].end].layout is not None:
        row = [*row[:-2], replace(row[-2], parts=row[-2].parts + row[-1].parts)]
    if not has_head(graph, row) or graph.nodes[row[-1].end].layout is not None:
        return row

    def belongs_to_head(segment: Segment) -> bool:
        end = graph.nodes[segment.end]
        roles = {node.role for node in segment.nodes}
        pointwise = not segment.branches and not roles & (WORK - {"linear"})
        repeated = any(_work(segment) == _work(other) for other in row[:-2])
        return (pointwise and not repeated) or (end.layout is None and end.pooled)

    while len(row) > 2 and row[-2].stream == row[-1].stream and belongs_to_head(row[-2]):
        row = [*row[:-2], Segment(row[-2].parts + row[-1].parts)]
    return row


def _work(segment: Segment) -> set[tuple[str, str]]:
    """What the works of a segment are, and what their modules are called, numbers apart."""
    return {(_pattern(n.module), n.role) for n in segment.nodes if n.role in WORK}
