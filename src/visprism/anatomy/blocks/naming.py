"""Names of blocks: the path of the module that does a block's work."""

from collections import Counter
from collections.abc import Sequence

from visprism.anatomy.blocks.segments import Segment
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import WORK


def names_of(graph: Graph, segments: Sequence[Segment], *, headed: bool) -> list[str]:
    """A unique name for each segment; those of the image are stems, the last may be a head."""
    nodes_of: dict[str, set[int]] = {}
    for node in graph.nodes:
        for path in _ancestors(node.module):
            nodes_of.setdefault(path, set()).add(node.index)
    names = []
    for i, segment in enumerate(segments):
        if segment.start == 0 and len(segments) > 1:
            names.append("stem")
        elif i == len(segments) - 1 and headed:
            names.append("head")
        else:
            names.append(segment.module or _worker(segment.nodes, nodes_of))
    return unique(names)


def _ancestors(path: str) -> list[str]:
    """The path itself and the modules around it, from the inside out, without the model."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _worker(nodes: Sequence[Node], nodes_of: dict[str, set[int]]) -> str:
    """The largest module that works in this segment alone and does most of its arithmetic."""
    indices = {n.index for n in nodes}
    work = [n for n in nodes if n.role in WORK] or [nodes[-1]]
    shared = _shared([n.module for n in work])
    while shared not in nodes_of or not nodes_of[shared] <= indices:
        inner = [n for n in work if n.module != shared]
        if not inner:  # the module does this and other things in its own forward
            return shared or max(work, key=lambda n: n.macs).op
        parts: dict[str, int] = {}
        for node in inner:
            part = _part(node.module, shared)
            parts[part] = parts.get(part, 0) + node.macs
        most = max(parts, key=lambda part: parts[part])
        work = [n for n in inner if _part(n.module, shared) == most]
        shared = _shared([n.module for n in work])
    wider = [p for p in _ancestors(shared) if nodes_of[p] <= indices]
    return wider[-1]


def _shared(paths: Sequence[str]) -> str:
    """The innermost module around all paths; empty for the model itself."""
    around = [_ancestors(path) for path in paths]
    return next((p for p in around[0] if all(p in other for other in around)), "")


def _part(path: str, around: str) -> str:
    """The child of the module `around` that `path` lies in."""
    depth = around.count(".") + 1 if around else 0
    return ".".join(path.split(".")[: depth + 1])


def unique(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that came before: ``act``, ``act#2``."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return numbered
