"""Kinds of blocks, derived from their operations."""

from collections.abc import Collection, Sequence
from typing import Literal

from visprism.anatomy.blocks.reach import Reach
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import RECURRENCES, TRANSFORMS

Kind = Literal[
    "stem",
    "conv",
    "attention",
    "mlp",
    "attention+mlp",
    "token-mixing",
    "downsample",
    "upsample",
    "head",
]


def kind_of(graph: Graph, nodes: Sequence[Node], reach: Reach) -> Kind:
    """The kind of a segment: how far information moves in it, and by which operations.

    What moves it between positions is an attention, or else token mixing; where nothing does
    but sliding windows it is a convolution (or a pooling, which mixes tokens), and where
    nothing does at all an mlp. "attention+mlp" has a pointwise network parallel to the
    attention (parallel branches). A causal product without a softmax is a scan written as a
    product, and no attention.
    """
    inside = {n.index for n in nodes}
    attentions, weighs = _attentions(graph, nodes, inside)
    if attentions and (weighs or reach != "causal"):
        return "attention+mlp" if _beside(graph, nodes, inside, attentions) else "attention"
    roles = {n.role for n in nodes}
    if reach in {"local", "causal", "global"}:
        return "token-mixing"
    if "conv" in roles:
        return "conv"
    return "token-mixing" if roles & {"token-mixing", "pool"} else "mlp"


def reach_of(nodes: Sequence[Node], reach: Reach) -> Reach:
    """The reach of a segment with its sliding windows, which the probe leaves out."""
    windows = any(n.role in {"conv", "pool"} for n in nodes)
    return "local" if windows and reach in {"none", "unknown"} else reach


def operator_of(graph: Graph, nodes: Sequence[Node], kind: Kind, reach: Reach) -> str:
    """What moves information between positions in a segment, in the field's words."""
    ops = {n.op for n in nodes}
    roles = {n.role for n in nodes}
    if kind.startswith("attention"):
        return "attention"
    named = {"deform_conv2d": "deformable convolution", "grid_sample": "grid sampling"}
    found = " and ".join(name for op, name in named.items() if op in ops)
    if kind == "token-mixing" and not found:
        if ops & RECURRENCES or _reads_again(graph, nodes):
            return "recurrence"
        if ops & TRANSFORMS:
            return "Fourier transform"
        if "token-mixing" in roles:
            return "MLP over tokens"
        if "pool" in roles:
            return "pooling"
        return "scan" if reach in {"causal", "global"} else "local mixing"
    return found or ("convolution" if "conv" in roles else "")


def _reads_again(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether a weight is applied to what was made with the same weight: a recurrence."""
    inside, first = {n.index for n in nodes}, dict[tuple[str, ...], int]()
    for node in nodes:
        if node.role == "linear" and node.parameters:
            before = first.setdefault(node.parameters, node.index)
            if before != node.index and before in graph.ancestors(node.index, inside):
                return True
    return False


def _attentions(
    graph: Graph, nodes: Sequence[Node], inside: set[int]
) -> tuple[list[int], bool]:
    """Nodes that are an attention, or the last product of one; whether it has a softmax.

    An attention written out is a product of two tensors made from the image, and a second one
    that uses the first (with a softmax between, or without, as linear attention has none), of
    which one sums over positions; or a softmax followed by one product (outlook attention), if
    there is no convolution.
    """
    fused = [n.index for n in nodes if n.role == "attention"]
    if fused:
        return fused, True
    products = {n.index for n in nodes if n.role == "bilinear"}
    softmaxes = {n.index for n in nodes if n.role == "softmax"}
    convolved = any(n.role == "conv" for n in nodes)
    last_products, weighs = [], False
    for product in sorted(products):
        before = graph.ancestors(product, inside)
        mixes = any(graph.nodes[i].mixes for i in before & products)
        if (before & products - {product} and mixes) or (before & softmaxes and not convolved):
            last_products.append(product)
            weighs = weighs or bool(before & softmaxes)
    return last_products, weighs


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
