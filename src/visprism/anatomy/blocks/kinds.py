"""Kinds of blocks, derived from their operations."""

from collections.abc import Collection, Sequence
from typing import Literal

from visprism.anatomy.trace.graph import Graph, Node

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
        before = graph.ancestors(product, inside) - {product}
        if before & set(products) or (before & softmaxes and not convolved):
            last_products.append(product)
    return last_products


def _beside(
    graph: Graph, nodes: Sequence[Node], inside: set[int], attentions: Collection[int]
) -> bool:
    """Whether an activation on a path parallel to the attention is added to it, or joined.

    One that multiplies it is a gate, which moves no information over positions.
    """
    touching = set().union(*(graph.ancestors(i, inside) for i in attentions))
    for node in nodes:
        if node.role == "activation" and node.index not in touching:
            before = graph.ancestors(node.index, inside)
            has_weights = any(graph.nodes[i].role == "linear" for i in before)
            if has_weights and not before & set(attentions):
                # The first node that depends on both.
                both = next(
                    n
                    for n in nodes
                    if node.index in (made_of := graph.ancestors(n.index, inside))
                    and made_of & set(attentions)
                )
                if both.role == "merge":
                    return True
    return False
