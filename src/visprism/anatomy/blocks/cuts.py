"""Cuts: tensors that everything passes through, and the segments of the graph between them.

A cut is a node on every path from the image to the logits (a dominator of the output). A sum
of a residual branch is one; what lies inside the branch is bypassed by the skip and is none.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import WORK
from visprism.anatomy.trace.torch_functions import SUMS


@dataclass(frozen=True)
class CutSegment:
    """The operations between two neighboring cuts: one operation, or parallel paths.

    ``branches`` parallel paths, joined by a sum, a concatenation or an attention, with work on
    one at least: a residual block, a dense block, an inception module ``work``      one
    operation with weights or a window ``trivial``  the rest: norm, activation, gate
    (squeeze-and-excitation), change of layout
    """

    start: int  # the cut before; its output comes in
    end: int  # the cut after
    nodes: tuple[Node, ...]  # start excluded, end included
    type: Literal["branches", "work", "trivial"]

    @property
    def residual(self) -> bool:
        """Whether the paths are joined by a sum."""
        return self.type == "branches" and self.nodes[-1].op in SUMS

    @property
    def has_work(self) -> bool:
        """Whether it has work: more than norms, activations, gates and changes of layout."""
        return self.type != "trivial"


def cuts(graph: Graph) -> list[int]:
    """The cuts in forward order, the image and the logits included."""
    used = graph.ancestors(graph.output)
    last_use = dict.fromkeys(used, 0)
    for index in used:
        for i in graph.nodes[index].inputs:
            last_use[i] = max(last_use[i], index)
    indices, reach = [], 0
    for index in sorted(used):
        # Every edge from before has ended here, so nothing bypasses this node.
        if reach <= index and (graph.nodes[index].shape is not None or index == 0):
            indices.append(index)
        reach = max(reach, last_use[index])
    return indices


def cut_segments(graph: Graph) -> list[CutSegment]:
    """The segments between neighboring cuts, in forward order."""
    used = sorted(graph.ancestors(graph.output))
    ends = cuts(graph)
    segments = []
    for start, end in itertools.pairwise(ends):
        nodes = tuple(graph.nodes[i] for i in used if start < i <= end)
        segments.append(CutSegment(start, end, nodes, _type(nodes)))
    return segments


def _type(nodes: tuple[Node, ...]) -> Literal["branches", "work", "trivial"]:
    work = [n for n in nodes if n.role in WORK]
    if not work:
        return "trivial"
    if len(nodes) == 1:
        return "work"
    # A product with a gate (squeeze-and-excitation) only rescales what went before.
    return "branches" if nodes[-1].role in {"merge", *WORK} else "trivial"
