"""Attentions of a model: their operations, and the positions of their tokens.

An attention is a fused operation, or a softmax between two products: of queries and keys before
it, of its weights and the values after it. Attention without a softmax (linear attention) has
no weights that sum to 1, and does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.token_grids import AttentionGeometry

# Between the scores and the softmax, and between the softmax and the values, stand a scale, a
# bias, a mask, dropout, a change of layout, or a linear map of heads (talking heads).
_BETWEEN = frozenset({"pointwise", "layout", "merge", "linear", "norm", "activation"})


@dataclass(frozen=True)
class Attention:
    """One operation that weighs keys for each query."""

    name: str  # of its block; "#2" for the second in one block
    block: Block
    node: int  # of the graph: the fused operation, or the softmax
    image: tuple[int, int]  # height and width in pixels
    geometry: AttentionGeometry = field(compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of one attention for a batch of images."""

    attention: Attention
    values: Float[Tensor, "b windows heads queries keys"]  # add up to 1 over keys


def attentions(anatomy: Anatomy) -> tuple[Attention, ...]:
    """Every attention over positions of the grid, in forward order.

    Attention over channels (XCiT) is left out: its tokens have no places.
    """
    all_attentions = []
    height, width = anatomy.image_shape[-2:]
    for block in anatomy:
        if block.layout is None:  # its tokens are not the tokens of one grid
            continue
        inside = anatomy.nodes(block)
        in_block = list(_attentions(anatomy.graph, inside))
        for number, (node, geometry) in enumerate(in_block, start=1):
            name = block.name if number == 1 else f"{block.name}#{number}"
            all_attentions.append(Attention(name, block, node.index, (height, width), geometry))
    return tuple(all_attentions)


def _attentions(
    graph: Graph, inside: Sequence[Node]
) -> Iterator[tuple[Node, AttentionGeometry]]:
    indices = {node.index for node in inside}
    multiplied = {
        index
        for node in inside
        if node.role == "bilinear"
        for index in _before(graph, node, indices)
        if graph.nodes[index].axis in {-1, -2}
    }
    for node in inside:
        if node.role == "attention" and node.geometry is not None:
            yield node, node.geometry
        elif node.index in multiplied:
            scores = [graph.nodes[i] for i in _before(graph, node, indices)]
            products = [n for n in scores if n.role == "bilinear" and n.geometry is not None]
            if products and (geometry := products[-1].geometry) is not None:
                yield node, geometry if node.axis == -1 else geometry.transposed


def _before(graph: Graph, node: Node, inside: set[int]) -> list[int]:
    """Nodes of the block that lead to `node` through nothing but `_BETWEEN`, in order."""
    ancestors, left = set[int](), [node.index]
    while left:
        new = [i for i in graph.nodes[left.pop()].inputs if i in inside and i not in ancestors]
        ancestors.update(new)
        left.extend(i for i in new if graph.nodes[i].role in _BETWEEN)
    return sorted(ancestors)
