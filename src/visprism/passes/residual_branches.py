"""Residual branches: where a branch leaves the stream, and what it adds, in the graph."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from visprism.anatomy import Anatomy, Block, Layout
from visprism.anatomy.run.interception import fixed_image_size, intercept
from visprism.anatomy.trace.graph import Graph, Node

# After the sum: what acts on each position alone, or moves numbers without changing them.
_AFTER_SUM = frozenset({"pointwise", "layout", "activation", "norm"})


class BranchEnd(NamedTuple):
    """The input or the output of a residual branch; a probe extracts both."""

    block: Block
    end: Literal["input", "output"]


@dataclass(frozen=True)
class Branch:
    """A residual branch: the nodes that make its input and its output."""

    block: Block
    input: Node
    output: Node


def residual_branches(anatomy: Anatomy) -> tuple[Branch, ...]:
    """Branches of blocks that add one to their unchanged input, in forward order.

    Blocks with a convolution in the shortcut, with several branches side by side, or whose grid
    changes have none.
    """
    pairs = ((block, _branch(anatomy.graph, block)) for block in anatomy)
    return tuple(branch for _, branch in pairs if branch is not None)


def _branch(graph: Graph, block: Block) -> Branch | None:
    if block.layout is None:
        return None
    node = graph.nodes[block.end]
    while node.role in _AFTER_SUM and len(node.inputs) == 1 and node.inputs[0] > block.start:
        node = graph.nodes[node.inputs[0]]
    if node.role != "merge" or not node.op.strip("_").startswith(("add", "iadd")):
        return None
    if len(node.inputs) != 2:
        return None
    shortcuts = [i for i in node.inputs if _is_shortcut(graph, i, block.start)]
    outputs = [i for i in node.inputs if i not in shortcuts]
    if len(shortcuts) != 1 or len(outputs) != 1:
        return None
    source, output = graph.nodes[block.start], graph.nodes[outputs[0]]
    if source.layout is None or output.layout is None:
        return None
    same = source.layout.grid == output.layout.grid == block.layout.grid
    return Branch(block, source, output) if same else None


def _is_shortcut(graph: Graph, index: int, start: int) -> bool:
    """Whether a tensor is the block's input, but for its layout."""
    node = graph.nodes[index]
    while node.index != start:
        if node.role != "layout" or len(node.inputs) != 1 or node.inputs[0] < start:
            return False
        node = graph.nodes[node.inputs[0]]
    return True


@contextmanager
def branch_maps(
    anatomy: Anatomy, branches: Sequence[Branch], extract: Callable[[Tensor], list[Tensor]]
) -> Iterator[dict[str, list[Tensor]]]:
    """Inside, each forward pass fills a dictionary with extracts of both ends of each branch.

    `extract` is given the feature map (B, C, H, W) at once, inside the forward pass.
    """
    extracts: dict[str, list[Tensor]] = {}

    def reading(name: str, layout: Layout) -> Callable[[Tensor], None]:
        def read(x: Tensor) -> None:
            extracts[name] = extract(layout.to_map(x))

        return read

    reads = {}
    for branch in branches:
        for end, node in (("input", branch.input), ("output", branch.output)):
            assert node.layout is not None
            reads[node.index] = reading(f"{branch.block.name} {end}", node.layout)
    with fixed_image_size(anatomy), intercept(anatomy, reads=reads, changes={}):
        yield extracts
