"""Layers: an anatomy with one block for each call of an innermost module."""

from dataclasses import replace
from math import prod

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.naming import unique
from visprism.anatomy.trace.graph import Graph, Span
from visprism.anatomy.trace.torch_functions import DROPOUTS


def layers(anatomy: Anatomy) -> Anatomy:
    """The layers of a model instead of its blocks, for `observe` and `watch`.

    A layer is a call of a module in which no other is called, as a convolution, a norm or an
    activation; a module that is called again is one layer more, ``act#2``. Each has the kind
    and the stage of the block that contains it. Left out are layers whose output does not lie
    on a grid, and those that return their input (identities, dropout).

    The layer "before" another is the one that ran before it, which need not be its input:
    parallel branches run one after the other. Costs are those of blocks.

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


def _ancestors(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


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
