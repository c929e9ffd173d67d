"""Streams: parallel paths of a segment that have separate blocks.

A network of parallel streams has no cut between the first exchange of its streams and the last.
Such a segment is split in three steps.

1. Operations whose results reach the end of the segment only through one tensor are a path,
   which ends with that tensor. What one stream adds to another is thus part of the path of the
   other. (Each path is a subtree of the postdominator tree, below the end of the segment.)
2. The source of a path is the tensor with the fewest operations with weights between it and the
   end of the path, since residual sums carry it on. Any other tensor that comes in is a side
   input.
3. The cuts of a path are the nodes on every way from its source to its end. Its blocks follow
   from these as a model's blocks do.

A path continues the stream of its source, unless another path does so with fewer operations.

Source: Johnson, Pearson and Pingali (1994), The program structure tree, for regions of a graph
with one entry and one exit.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from visprism.anatomy.blocks.cuts import CutSegment, cut_segments, readers, type_of
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import JOINS, SUMS, WORK


@dataclass(frozen=True)
class Path:
    """Operations whose results reach the end of a segment only through one tensor."""

    row: tuple[CutSegment, ...]
    works: int  # fewest operations with weights on a way from its source to its end
    stream: int = 0
    one_block: bool = False  # such as a cell, or a branch that flows back into its stream

    @property
    def source(self) -> int:
        """The node whose output it continues."""
        return self.row[0].start

    @property
    def end(self) -> int:
        """The node that gives its last tensor."""
        return self.row[-1].end

    @property
    def branches(self) -> int:
        """The number of its segments that have several paths."""
        return sum(part.type == "branches" for part in self.row)


# A segment as paths, in forward order, and the operations that join them.
Split = tuple[Sequence[Path], CutSegment]


def _are_most(graph: Graph, nodes: Iterable[Node]) -> bool:
    """Whether nodes are most of a model's operations with weights, and of its arithmetic."""
    work = [n.macs for n in graph.nodes if n.role in WORK]
    inside = [n.macs for n in nodes if n.role in WORK]
    return 2 * len(inside) > len(work) and 2 * sum(inside) > sum(work)


def _has_row(graph: Graph, part: CutSegment, paths: Sequence[Path]) -> bool:
    """Whether a path has residual blocks in a row, and most of the model is around them.

    As in the stages of a network whose outputs another head reads.
    """
    rows = [sum(segment.residual for segment in path.row) for path in paths]
    module = part.nodes[-1].module
    while not all(_is_in(module, node) for node in part.nodes):
        module = module.rpartition(".")[0]
    around = [node for node in graph.nodes if _is_in(module, node)]
    return max(rows) > 1 and _are_most(graph, around)


def _is_in(module: str, node: Node) -> bool:
    return not module or f"{node.module}.".startswith(f"{module}.")


def split_streams(graph: Graph, part: CutSegment) -> Split | None:
    """The paths of a segment, or None if it has no streams.

    It has streams if residual sums of two paths run in parallel, each after another block of
    its path. In a segment that holds most of the model, paths of two operations with weights
    count too. So do blocks that each read several before them (the cells of NASNet), which form
    one stream, and so do the stages whose outputs a dense head reads. Residual sums in a row
    are blocks also where later ones read what is inside earlier ones (the values of the first
    attention).
    """
    if part.type != "branches":
        return None
    most = _are_most(graph, part.nodes)
    paths, joint = _paths(graph, part, latest=False)
    if not _in_parallel(graph, part, paths, most=most):
        if _goes_down_and_up(graph, part):
            nested = [_with_nested(graph, path) for path in paths]
            return list(itertools.chain.from_iterable(nested)), joint
        residual = _residual_row(graph, part)
        few = sum(path.branches for path in paths) < 2
        if residual is not None or few or not (most or _has_row(graph, part, paths)):
            return residual
        paths, joint = _paths(graph, part, latest=True)
        paths = [replace(path, one_block=path.branches < 2) for path in paths]
        nested = [[p] if p.one_block else _with_nested(graph, p) for p in paths]
        return list(itertools.chain.from_iterable(nested)), joint
    nested = [_with_nested(graph, path) for path in paths]
    paths = sorted(itertools.chain.from_iterable(nested), key=lambda path: path.end)
    return _with_streams(graph, part, paths), joint


def _goes_down_and_up(graph: Graph, part: CutSegment) -> bool:
    """Whether a part joins a map with one that went through a coarser grid (U-Net)."""
    layouts = [graph.nodes[i].layout for i in (part.start, part.end)]
    maps = [layout is not None and layout.axes == "b c h w" for layout in layouts]
    if graph.nodes[part.end].op not in JOINS or not all(maps):
        return False
    sides = [min(layout.grid) for layout in layouts if layout is not None]
    inside = [min(n.layout.grid) for n in part.nodes if n.role in WORK and n.layout is not None]
    return 1 < min(inside, default=0) < min(sides)


def _residual_row(graph: Graph, part: CutSegment) -> Split | None:
    """Sums of which each adds to the one before, and which each has other readers."""
    inside = {node.index for node in part.nodes}
    users = readers(graph, [node.index for node in part.nodes])
    sums = [part.end]
    while graph.nodes[sums[0]].op in SUMS and part.start not in graph.nodes[sums[0]].inputs:
        before = [i for i in graph.nodes[sums[0]].inputs if len(users.get(i, ())) > 1]
        if not before:
            return None
        sums.insert(0, min(before))
    if len(sums) < 2 or graph.nodes[sums[0]].op not in SUMS:
        return None
    row, done, start = [], set[int](), part.start
    for end in sums:
        indices = sorted(graph.ancestors(end) & inside - done)
        nodes = tuple(graph.nodes[i] for i in indices)
        row.append(CutSegment(start, end, nodes, type_of(nodes)))
        done.update(indices)
        start = end
    return [Path(tuple(row[:-1]), 0)], row[-1]


def _paths(graph: Graph, part: CutSegment, *, latest: bool) -> Split:
    """The paths of a segment; the source of each is its latest input if `latest`."""
    groups, end = _groups(graph, part), part.end
    joint = set(groups.pop(end))
    if latest:
        groups = _without_last_cell(graph, groups, joint)
    users = readers(graph, [n.index for n in part.nodes])
    paths = []
    for last, group in groups.items():
        path = _path(graph, group, latest=latest)
        tail = _pooled_tail(graph, path) if users.get(last) == [end] else ()
        joint.update(n.index for segment in tail for n in segment.nodes)
        if len(tail) < len(path.row):
            paths.append(replace(path, row=path.row[: len(path.row) - len(tail)]))
    return paths, _joint(graph, sorted(joint))


def _joint(graph: Graph, group: Sequence[int]) -> CutSegment:
    """The operations that join the paths, as one segment, which continues the latest path."""
    nodes = tuple(graph.nodes[i] for i in group)
    inputs = {i for node in nodes for i in node.inputs}
    work = any(node.role in WORK for node in nodes)
    type_ = "work" if work else "trivial"
    return CutSegment(max(inputs - set(group)), group[-1], nodes, type_)


def _without_last_cell(
    graph: Graph, groups: dict[int, list[int]], joint: set[int]
) -> dict[int, list[int]]:
    """Paths without the operations of the module that joins them, which are added to `joint`.

    The paths inside the last cell end where the segment does, as the cells themselves do.
    """
    module = graph.nodes[max(joint)].module
    if all(_is_in(module, graph.nodes[i]) for i in groups):
        return groups
    rest = [
        [i for i in group if not _is_in(module, graph.nodes[i])] for group in groups.values()
    ]
    paths = {group[-1]: group for group in rest if _is_path(graph, group)}
    joint.update(set().union(*groups.values()).difference(*paths.values()))
    return paths


def _groups(graph: Graph, part: CutSegment) -> dict[int, list[int]]:
    """The nodes of each path, and of what joins them, by the last node.

    Those without work are copied to all that read them.
    """
    indices = [n.index for n in part.nodes]
    users = readers(graph, indices)
    after: dict[int, int] = {part.end: part.end}  # the next node on every way to the end
    last_of: dict[int, int] = {}
    groups: dict[int, list[int]] = {part.end: [part.end]}
    for index in reversed(indices[:-1]):
        after[index] = _meeting(after, users[index])
        last_of[index] = index if after[index] == part.end else last_of[after[index]]
        groups.setdefault(last_of[index], []).append(index)
    groups = {last: sorted(group) for last, group in sorted(groups.items())}

    copied: dict[int, set[int]] = {}
    for last, group in groups.items():
        inputs = {i for index in group for i in graph.nodes[index].inputs}
        members = set(group).union(*(copied[i] for i in inputs & copied.keys()))
        if last == part.end or _is_path(graph, group):
            groups[last] = sorted(members)
        else:
            copied[last] = members
    return {last: group for last, group in groups.items() if last not in copied}


def _is_path(graph: Graph, group: Sequence[int]) -> bool:
    """Whether the operations have work, and a tensor comes out."""
    work = any(graph.nodes[i].role in WORK for i in group)
    return work and graph.nodes[group[-1]].shape is not None


def _meeting(after: dict[int, int], nodes: Sequence[int]) -> int:
    """The first node that every way from each of `nodes` passes."""
    meeting = nodes[0]
    for node in nodes[1:]:
        while meeting != node:
            meeting, node = min(meeting, node), max(meeting, node)
            meeting = after[meeting]
    return meeting


def _path(graph: Graph, group: Sequence[int], *, latest: bool) -> Path:
    source, works = _source(graph, group, latest=latest)
    return Path(tuple(_with_joint_sums(cut_segments(graph, source, group))), works)


def _source(graph: Graph, group: Sequence[int], *, latest: bool) -> tuple[int, int]:
    """The tensor that a path continues, and the fewest operations with weights on the way."""
    users, works = readers(graph, group), dict[int, int]()
    inputs: dict[int, int] = {}
    for index in reversed(group):
        node = graph.nodes[index]
        works[index] = min((works[i] for i in users[index]), default=0) + (node.role in WORK)
        for i in node.inputs:
            if i not in users:
                inputs[i] = min(inputs.get(i, works[index]), works[index])
    source = max(inputs) if latest else min(inputs, key=lambda i: (inputs[i], i))
    return source, inputs[source]


def _with_joint_sums(row: Sequence[CutSegment]) -> list[CutSegment]:
    """The row with neighboring sums of side inputs as one segment."""
    result: list[CutSegment] = []
    for segment in row:
        if result and _is_side_sum(segment) and _is_side_sum(result[-1]):
            nodes = result[-1].nodes + segment.nodes
            result[-1] = CutSegment(result[-1].start, segment.end, nodes, type_of(nodes))
        else:
            result.append(segment)
    return result


def _is_side_sum(segment: CutSegment) -> bool:
    """Whether a segment adds side inputs to its start, and nothing that is made of it."""
    made = {segment.start}
    made.update(n.index for n in segment.nodes if n.op in SUMS and made.intersection(n.inputs))
    return all(n.index in made for n in segment.nodes if made.intersection(n.inputs))


def _pooled_tail(graph: Graph, path: Path) -> tuple[CutSegment, ...]:
    """The last segments of a path, in which no positions are left: they belong to the head."""
    if not graph.nodes[path.end].pooled:
        return ()
    on_grid = [i for i, part in enumerate(path.row) if graph.nodes[part.end].layout is not None]
    return path.row[on_grid[-1] + 1 :] if on_grid else path.row


def _in_parallel(graph: Graph, part: CutSegment, paths: Sequence[Path], *, most: bool) -> bool:
    """Whether later blocks of two paths do not depend on each other."""
    ends = [(i, end) for i, path in enumerate(paths) for end in _later(graph, path, most=most)]
    bits = {end: 1 << bit for bit, (_, end) in enumerate(ends)}
    depends: dict[int, int] = {}
    for node in part.nodes:
        depends[node.index] = bits.get(node.index, 0)
        for i in node.inputs:
            depends[node.index] |= depends.get(i, 0)
    return any(
        i != k and not (depends[a] & bits[b] or depends[b] & bits[a])
        for (i, a), (k, b) in itertools.combinations(ends, 2)
    )


def _later(graph: Graph, path: Path, *, most: bool) -> Iterator[int]:
    """Ends of the blocks of a path that come after another one."""
    parts = [part for part in path.row if part.has_work]
    for i, part in enumerate(parts):
        if (i > 0 and part.residual) or split_streams(graph, part) is not None:
            yield part.end
    if most and len(parts) > 1:
        yield path.end


def _with_nested(graph: Graph, path: Path) -> list[Path]:
    """The path, with separate paths for each of its segments that has streams."""
    result: list[Path] = []
    row: list[CutSegment] = []
    for part in path.row:
        split = split_streams(graph, part)
        if split is not None:
            paths, part = split
            result += [replace(path, row=tuple(row)), *paths] if row else paths
            row = []
        sides, part = _without_side(graph, part)
        result += sides
        row.append(part)
    return [*result, replace(path, row=tuple(row))]


def _without_side(graph: Graph, part: CutSegment) -> tuple[list[Path], CutSegment]:
    """The residual sums that a part has only in a side input, as a path, and the rest."""
    dependent = {part.start}
    for node in part.nodes:
        if dependent.intersection(node.inputs):
            dependent.add(node.index)
    side = [n.index for n in part.nodes if n.index not in dependent]
    read = {i for n in part.nodes if n.index in dependent for i in n.inputs}
    if len(read.intersection(side)) != 1 or graph.nodes[side[-1]].shape is None:
        return [], part
    row = cut_segments(graph, _source(graph, side, latest=False)[0], side)
    sums = [segment for segment in row if segment.residual and not _is_side_sum(segment)]
    last = max((segment.end for segment in sums), default=0)
    inside = [n.index for segment in row if segment.end <= last for n in segment.nodes]
    if not inside:
        return [], part
    rest = tuple(n for n in part.nodes if n.index not in inside)
    path = _path(graph, sorted(inside), latest=False)
    return [path], replace(part, nodes=rest, type=type_of(rest))


def _with_streams(graph: Graph, part: CutSegment, paths: Sequence[Path]) -> list[Path]:
    """The paths with the numbers of their streams; 0 continues the model before them."""
    by_source: dict[int, list[Path]] = {}
    for path in paths:
        by_source.setdefault(path.source, []).append(path)
    first = {
        source: min(others, key=lambda path: (path.works, path.end))
        for source, others in by_source.items()
    }
    unchanged = [path for path in by_source.get(part.start, ()) if path.works == 0]
    stream_at = {unchanged[0].end: 0} if len(unchanged) == 1 else {}
    numbered, count = [], 0
    for path in paths:
        one_block = False
        if path.end not in stream_at:
            continues = path.source in stream_at and path is first[path.source]
            one_block = not continues and _flows_back(graph, path, first[path.source])
            if (continues or one_block) and path.source in stream_at:
                stream_at[path.end] = stream_at[path.source]
            else:
                one_block, count = False, count + 1
                stream_at[path.end] = count
        numbered.append(replace(path, stream=stream_at[path.end], one_block=one_block))
    return numbered


def _flows_back(graph: Graph, path: Path, stream: Path) -> bool:
    """Whether a path is read by another path of the same source, on the same grid."""
    layouts = graph.nodes[path.source].layout, graph.nodes[path.end].layout
    grids = {None if layout is None else layout.grid for layout in layouts}
    nodes = (node for part in stream.row for node in part.nodes)
    return path is not stream and len(grids) == 1 and any(path.end in n.inputs for n in nodes)
