"""Cuts: tensors that everything passes through, and the segments of the graph between them.

A cut is a node on every path from the image to the logits (a dominator of the output). A sum
of a residual branch is one; what lies inside the branch is bypassed by the skip and is none.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import SUMS, WORK


@dataclass(frozen=True)
class CutSegment:
    """The operations between two neighboring cuts: one operation, or parallel paths.

    - ``"branches"``: parallel paths, joined by a sum, a concatenation or an attention, with
      work on one at least: a residual block, a dense block, an inception module;
    - ``"work"``: one operation with weights or a window;
    - ``"trivial"``: the rest: norm, activation, squeeze-and-excitation, change of layout.
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


def cuts(graph: Graph, source: int, nodes: Sequence[int]) -> list[int]:
    """The cuts of a part of the graph in forward order, `source` and the last node included."""
    last_use = {source: source}  # of the nodes that depend on the source
    for index in nodes:
        before = [i for i in graph.nodes[index].inputs if i in last_use]
        if before:
            last_use[index] = index
            last_use.update(dict.fromkeys(before, index))
    indices, reach = [], source
    for index, last in last_use.items():
        # Every edge from before has ended here, so nothing bypasses this node.
        if reach <= index and (graph.nodes[index].shape is not None or index == source):
            indices.append(index)
        reach = max(reach, last)
    return indices


def cut_segments(graph: Graph, source: int, nodes: Sequence[int]) -> list[CutSegment]:
    """The segments between neighboring cuts, in forward order."""
    ends = cuts(graph, source, nodes)
    cut_after = {end: end for end in ends}
    members: dict[int, list[Node]] = {end: [] for end in ends}
    users = readers(graph, nodes)
    for index in reversed(nodes):
        cut_after[index] = cut_after.get(index) or min(cut_after[i] for i in users[index])
        members[cut_after[index]].append(graph.nodes[index])
    segments = []
    for start, end in itertools.pairwise(ends):
        segment_nodes = tuple(reversed(members[end]))
        segments.append(CutSegment(start, end, segment_nodes, type_of(segment_nodes)))
    return segments


def readers(graph: Graph, nodes: Sequence[int]) -> dict[int, list[int]]:
    """Which of `nodes` read the output of each of them."""
    users: dict[int, list[int]] = {index: [] for index in nodes}
    for index in nodes:
        for i in graph.nodes[index].inputs:
            if i in users:
                users[i].append(index)
    return users


def type_of(nodes: tuple[Node, ...]) -> Literal["branches", "work", "trivial"]:
    """The type of a segment with these nodes, as `CutSegment` describes them."""
    work = [n for n in nodes if n.role in WORK]
    if not work:
        return "trivial"
    if len(nodes) == 1:
        return "work"
    # A product with a gate (squeeze-and-excitation) only rescales what went before.
    return "branches" if nodes[-1].role in {"merge", *WORK} else "trivial"
