"""Taps of a forward pass, read by statistics: feature maps, attention, residual branches."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.attention import Attention, Weights, attentions
from visprism.anatomy.run.attention_weights import attend
from visprism.anatomy.run.interception import fixed_image_size, intercept
from visprism.anatomy.run.surgery import watch, watch_tokens
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.token_positions import Layout
from visprism.core.errors import InputError
from visprism.passes.statistic import Extract, Extracts, FeatureStatistic
from visprism.passes.tokens import Tokens, token_roles

# After the sum: what acts on each position by itself, or moves numbers without changing them.
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


@dataclass(frozen=True)
class Tap:
    """Some statistics, and what they extract at each of their sources, by the source's name."""

    statistics: Sequence[FeatureStatistic]
    sources: Mapping[str, Block | Attention | BranchEnd]
    extracted: dict[str, list[Extract]]

    def extracts(self) -> list[Extracts]:
        """What each statistic extracted from the latest forward pass, in forward order."""
        for name in self.sources:
            if name not in self.extracted:
                raise InputError(
                    f"block {name!r} did not run for these images as it did when the model was "
                    "dissected. Dissect the model as it is now, with images like these."
                )
        return [
            {source: self.extracted[name][i] for name, source in self.sources.items()}
            for i in range(len(self.statistics))
        ]


def _extracted(statistics: Sequence[FeatureStatistic], x: Tensor) -> list[Extract]:
    with _without_autocast(x):
        return [statistic.extract(_precise(x)) for statistic in statistics]


def _feature_maps(
    anatomy: Anatomy, statistics: Sequence[FeatureStatistic], stack: ExitStack
) -> Tap:
    blocks = {block.name: block for block in anatomy if block.layout is not None}
    extract = partial(_extracted, statistics)
    return Tap(statistics, blocks, stack.enter_context(watch(anatomy, extract)))


def _tokens(anatomy: Anatomy, statistics: Sequence[FeatureStatistic], stack: ExitStack) -> Tap:
    roles = token_roles(anatomy)

    def extract(block: Block, grid: Tensor, off_grid: Tensor) -> list[Extract]:
        with _without_autocast(grid):
            tokens = Tokens(block, _precise(grid), _precise(off_grid), roles[block.name])
            return [statistic.extract(tokens) for statistic in statistics]

    blocks = {block.name: block for block in anatomy if block.layout is not None}
    return Tap(statistics, blocks, stack.enter_context(watch_tokens(anatomy, extract)))


def _attention(
    anatomy: Anatomy, statistics: Sequence[FeatureStatistic], stack: ExitStack
) -> Tap:
    def extract(weights: Weights) -> list[Extract]:
        with _without_autocast(weights.values):
            precise = replace(weights, values=_precise(weights.values))
            return [statistic.extract(precise) for statistic in statistics]

    sources = {attention.name: attention for attention in attentions(anatomy)}
    return Tap(statistics, sources, stack.enter_context(attend(anatomy, extract)))


def _residual_branches(
    anatomy: Anatomy, statistics: Sequence[FeatureStatistic], stack: ExitStack
) -> Tap:
    branches = residual_branches(anatomy)
    if not branches:
        raise InputError(
            f"{type(anatomy.model).__name__} has no residual branch with an identity shortcut"
        )
    extracted: dict[str, list[Extract]] = {}

    def read(name: str, layout: Layout, x: Tensor) -> None:
        extracted[name] = _extracted(statistics, layout.to_map(x))

    reads, ends = {}, {}
    for branch in branches:
        for end, node in (("input", branch.input), ("output", branch.output)):
            assert node.layout is not None
            name = f"{branch.block.name} {end}"
            reads[node.index] = partial(read, name, node.layout)
            ends[name] = BranchEnd(branch.block, end)
    stack.enter_context(fixed_image_size(anatomy))
    stack.enter_context(intercept(anatomy, reads=reads))
    return Tap(statistics, ends, extracted)


_TAPS = {
    "tokens": _tokens,  # first: it runs the model before others read it
    "feature maps": _feature_maps,
    "attention": _attention,
    "residual branches": _residual_branches,
}


def taps(
    anatomy: Anatomy, statistics: Sequence[FeatureStatistic], stack: ExitStack
) -> list[Tap]:
    """Taps for these statistics, which each forward pass fills until `stack` is closed."""
    readable = bool(attentions(anatomy))
    made = []
    for sees, tap in _TAPS.items():
        members = [statistic for statistic in statistics if sees in statistic.all_seen]
        # `attend` refuses statistics that see no other.
        if sees == "attention" and not readable:
            members = [statistic for statistic in members if statistic.all_seen == (sees,)]
        if members:
            made.append(tap(anatomy, members, stack))
    return made


def _without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Inside, operations run in the precision of their arguments."""
    device = like.device.type
    if not torch.is_autocast_enabled(device):
        return nullcontext()  # autocast takes as long as several operations on a small tensor
    return torch.autocast(device, enabled=False)


def _precise(x: Tensor) -> Tensor:
    """In float32 or better, whatever the precision of the forward pass; without a gradient."""
    x = x.detach()  # a model may turn gradients on in its forward pass
    return x if x.dtype == torch.float64 else x.float()
