"""Kinds of blocks, derived from their operations."""

from collections.abc import Collection, Sequence
from typing import Literal

from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import Role

Kind = Literal[
    "stem", "conv", "attention", "mlp", "attention+mlp", "token-mixing", "downsample", "head"
]


def kind_of(graph: Graph, nodes: Sequence[Node]) -> Kind:
    """The kind of a segment: what moves information over the grid decides, attention first.

    The kind is "attention+mlp" if a pointwise network runs in parallel to the attention
    (parallel branches).
    """
    roles = {n.role for n in nodes}
    inside = {n.index for n in nodes}
    attentions = _attentions(graph, nodes, inside)
    if attentions:
        return "attention+mlp" if _beside(graph, nodes, inside, attentions) else "attention"
    if "conv" in roles:
        return "conv"
    if roles & {"token-mixing", "pool"}:
        return "token-mixing"
    return "mlp"


def _attentions(graph: Graph, nodes: Sequence[Node], inside: set[int]) -> list[int]:
    """Nodes that are an attention, or the last product of one.

    An attention written out is a product of two tensors made from the image, and a second one
    that uses the first (with a softmax between, or without, as linear attention has none); or a
    softmax followed by one product (outlook attention), if there is no convolution.
    """
    fused = [n.index for n in nodes if n.role == "attention"]
    if fused:
        return fused
    products = [n.index for n in nodes if n.role == "bilinear"]
    softmaxes = {n.index for n in nodes if n.role == "softmax"}
    convolved = any(n.role == "conv" for n in nodes)
    last_products = []
    for product in products:
        before = _within(graph, product, inside) - {product}
        if before & set(products) or (before & softmaxes and not convolved):
            last_products.append(product)
    return last_products


def _beside(
    graph: Graph, nodes: Sequence[Node], inside: set[int], attentions: Collection[int]
) -> bool:
    """Whether an activation on a path parallel to the attention is added to it, or joined.

    One that multiplies it is a gate, which moves no information over positions.
    """
    touching: set[int] = set()
    for attention in attentions:
        touching |= _within(graph, attention, inside)
    for node in nodes:
        if node.role == "activation" and node.index not in touching:
            before = _within(graph, node.index, inside)
            has_weights = any(graph.nodes[i].role == "linear" for i in before)
            beside = has_weights and not before & set(attentions)
            if beside and _meeting(graph, nodes, inside, node.index, attentions) == "merge":
                return True
    return False


def _meeting(
    graph: Graph,
    nodes: Sequence[Node],
    inside: set[int],
    index: int,
    attentions: Collection[int],
) -> Role:
    """The role of the first node that depends on both a node and an attention."""
    return next(
        node.role
        for node in nodes
        if index in (before := _within(graph, node.index, inside)) and before & set(attentions)
    )


def _within(graph: Graph, index: int, inside: Collection[int]) -> set[int]:
    """A node and those that it depends on, as far as they lie in the segment."""
    ancestors, left = {index}, [index]
    while left:
        new = [i for i in graph.nodes[left.pop()].inputs if i in inside and i not in ancestors]
        ancestors.update(new)
        left.extend(new)
    return ancestors
