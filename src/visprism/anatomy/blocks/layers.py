"""Names of blocks, and layers: an anatomy with one block for each innermost module."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.segments import Segment
from visprism.anatomy.trace.graph import Graph, Node, Span
from visprism.anatomy.trace.operations import DROPOUTS, WORK

_SHARE = 0.25  # of a module's arithmetic


def names_of(graph: Graph, segments: Sequence[Segment], *, headed: bool) -> list[str]:
    """A unique name for each segment; an image's segments are stems, the last may be a head."""
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
            names.append(segment.module or _worker(graph, segment.nodes, nodes_of))
    return unique(names)


def _ancestors(path: str) -> list[str]:
    """The path itself and the modules around it, from the inside out, without the model."""
    parts = path.split(".") if path else []
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _worker(graph: Graph, nodes: Sequence[Node], nodes_of: dict[str, set[int]]) -> str:
    """The largest module that works only in this segment and does most of its arithmetic.

    If several share the work and none does half of it, the nearest module that holds them
    all, where this is a large part of what that module does.
    """
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
        around = sum(graph.nodes[i].macs for i in nodes_of.get(shared, ()))
        if graph.calls.get(shared) and sum(parts.values()) > max(
            2 * parts[most], _SHARE * around
        ):
            return shared
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


def layers(anatomy: Anatomy) -> Anatomy:
    """The layers of a model instead of its blocks, for `observe` and `watch`.

    A layer is a call of a module in which no other is called, as a convolution, a norm or an
    activation; a module that is called again is one layer more, ``act#2``. Each has the kind
    and the stage of the block that contains it. Left out are layers whose output does not lie
    on a grid, and those that return their input (identities, dropout).

    The layer "before" another is the one that ran before it, which need not be its input:
    parallel branches run one after the other. Costs are the blocks' costs.

    Takes no time: the layers were found when the model was dissected.
    """
    graph = anatomy.graph
    spans = [span for span in _innermost(graph) if _works(graph, span)]
    names = unique([span.module for span in spans])
    blocks: list[Block] = []
    for i, (name, span) in enumerate(zip(names, spans, strict=True)):
        node = graph.nodes[span.output or 0]
        around = min(anatomy, key=lambda b: (node.index not in b.nodes, b.end < node.index))
        layout = node.layout
        assert layout is not None
        assert node.shape is not None
        area = prod(layout.grid)
        before = blocks[-1].shape[1:] if blocks else layout.grid
        blocks.append(
            replace(
                around,
                name=name,
                depth=i / max(1, len(spans) - 1),
                subsampling=area < prod(before),
                shape=(node.shape[layout.channels_axis], *layout.grid),
                layout=layout,
                previous=None,
                parameters=_parameters(graph, span),
                nodes=tuple(range(min(span.inputs) + 1, node.index + 1)),
                start=min(span.inputs),
                end=node.index,
            )
        )
    return replace(anatomy, blocks=tuple(blocks))


def _innermost(graph: Graph) -> list[Span]:
    """Calls of modules in which no other module is called, in forward order."""
    outer = {module.rpartition(".")[0] for module in graph.calls}
    around = {path for module in outer for path in _ancestors(module)}
    return [span for span in graph.spans if span.module not in around]


def _works(graph: Graph, span: Span) -> bool:
    """Whether a layer changes what comes in, and gives a feature map on a grid."""
    if span.output is None or not span.inputs or span.output in span.inputs:
        return False
    node = graph.nodes[span.output]
    inside = graph.nodes[max(span.inputs) + 1 : node.index + 1]
    ops = {n.op for n in inside if n.module == span.module}
    return node.layout is not None and not ops <= DROPOUTS


def _parameters(graph: Graph, span: Span) -> tuple[str, ...]:
    """Names of the parameters that a layer reads."""
    nodes = [node for node in graph.nodes if node.module == span.module]
    return tuple(sorted({name for node in nodes for name in node.parameters}))
