"""Names of blocks: the path of the module that does a block's work."""

from collections import Counter
from collections.abc import Sequence

from visprism.anatomy.graph import Graph, Node
from visprism.anatomy.operations import WORK


def names_of(
    graph: Graph, stretches: Sequence[Sequence[Node]], spans: Sequence[str | None]
) -> list[str]:
    """A unique name for each stretch; the first is the stem, the last the head."""
    nodes_of: dict[str, set[int]] = {}
    for node in graph.nodes:
        for path in _ancestors(node.module):
            nodes_of.setdefault(path, set()).add(node.index)
    names = []
    for i, (nodes, span) in enumerate(zip(stretches, spans, strict=True)):
        if i == len(stretches) - 1:
            names.append("head")
        elif i == 0:
            names.append("stem")
        else:
            names.append(span or _worker(nodes, nodes_of))
    return _unique(names)


def _ancestors(path: str) -> list[str]:
    """The path itself and the modules around it, from the inside out, without the model."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _worker(nodes: Sequence[Node], nodes_of: dict[str, set[int]]) -> str:
    """The largest module that works in this stretch alone."""
    here = {n.index for n in nodes}
    work = [n.module for n in nodes if n.role in WORK] or [nodes[0].module]
    shared = [p for p in _ancestors(work[0]) if all(p in _ancestors(m) for m in work)]
    candidates = shared or _ancestors(work[0])
    inside = [p for p in candidates if nodes_of[p] <= here]
    if inside:
        return inside[-1]
    return candidates[0] if candidates else nodes[-1].op


def _unique(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique
