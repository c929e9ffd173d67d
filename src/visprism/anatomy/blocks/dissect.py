"""Dissection: the blocks of any model, found in its graph.

The graph is traced, cut where everything passes through one tensor (`cuts`), and the segments
between cuts are merged to blocks (`segments`). This module assigns each block its kind, stage,
depth and layout. Nothing depends on names or classes.
"""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import prod

import torch
from torch import nn

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.kinds import Kind, kind_of, operator_of, reach_of
from visprism.anatomy.blocks.layers import names_of
from visprism.anatomy.blocks.reach import Reach, reaches_of, readable
from visprism.anatomy.blocks.segments import Segment, has_head, segments
from visprism.anatomy.trace.forward import Images, part_of, pixels, placed, without_replicas
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import JOINS
from visprism.anatomy.trace.trace import later_trace, trace
from visprism.core.devices import Compute, copied_buffers
from visprism.core.errors import InputError

# The first image, twice: a batch of two distinguishes the batch axis from axes of length 1, and
# equal images show which axis of any tensor is the batch axis.
_IMAGES = [0, 0]


def dissect(model: nn.Module, images: Images, *, device: str | None = None) -> Anatomy:
    """Split a model into blocks automatically.

    Costs two forward passes of the first image, twice; one of them is traced. The kind of a
    block comes from what moves information over the grid in it (attention, convolution, token
    mixing, or nothing: mlp), its stage from the size of the grid.

    Args:
        model: any image classifier, in evaluation mode; it is not changed.
        images: a batch (B, C, H, W), or a mapping of tensors for models that take one; on any
            device.
        device: on which the model is run; by default where it lies.
    """
    model = without_replicas(model)
    if any(m.training for m in model.modules()):
        raise InputError("model must be in evaluation mode. Call model.eval() first.")
    compute = Compute(device).on(model)
    with copied_buffers(model), nullcontext() if device is None else compute.borrow(model):
        few = _few(images, compute.torch_device)
        graph, blocks = _dissected(model, few)
    return Anatomy(model, blocks, graph, part_of(few, 0, 1))


def _dissected(model: nn.Module, images: Images) -> tuple[Graph, tuple[Block, ...]]:
    """The graph and its blocks, of a second trace where the first pass filled a cache."""
    buffers = dict(model.named_buffers(remove_duplicate=False))
    graph, names = trace(model, images)
    row = segments(graph)
    reaches, again = reaches_of(model, images, graph, row)
    if again != names:
        graph = later_trace(model, images, graph, buffers)
        row = segments(graph)
        reaches, _ = reaches_of(model, images, graph, row)
    return graph, _blocks(graph, row, reaches)


def _few(images: Images, device: torch.device) -> Images:
    pixels(images)  # whether there are any
    if isinstance(images, Mapping):
        images = {name: value[_IMAGES] for name, value in images.items()}
    else:
        images = images[_IMAGES]
    return placed(images, device)


def _blocks(
    graph: Graph, row: Sequence[Segment], reaches: Sequence[Reach]
) -> tuple[Block, ...]:
    headed = has_head(graph, row)
    names = names_of(graph, row, headed=headed)
    order = _forward_order(graph, row)
    deepest = max(order[:-1] if headed and len(row) > 1 else order)
    numbers = {segment.end: i for i, segment in enumerate(row)}
    blocks: list[Block] = []
    areas: list[int | None] = []  # of the grid of each block, or of the nearest before it
    for i, segment in enumerate(row):
        end = graph.nodes[readable(graph, segment.end)]
        first, last = segment.start == 0, headed and i == len(row) - 1
        layout = None if last else end.layout
        source = None if first else numbers[segment.start]
        before, area = (None, None) if source is None else (blocks[source], areas[source])
        block_area = prod(layout.grid) if layout else None
        subsampling = bool(area and block_area and block_area < area)
        grows = bool(area and block_area and block_area > area)
        shape = tuple(end.shape or ())[1:]
        if layout is not None:
            assert end.shape is not None  # a layout belongs to a tensor
            shape = (end.shape[layout.channels_axis], *layout.grid)
        kind = _kind(
            graph, segment, reaches[i], first=first, last=last, resized=subsampling - grows
        )
        sizes = [*zip(blocks, areas, strict=True)]
        stage = _stage(sizes, before, block_area, last=last, resized=subsampling - grows)
        blocks.append(
            Block(
                name=names[i],
                kind=kind,
                operator=operator_of(graph, segment.nodes, kind, reaches[i]),
                reach=reach_of(segment.nodes, reaches[i]),
                stage=stage,
                depth=min(1.0, order[i] / max(1, deepest)),
                subsampling=subsampling,
                shape=shape,
                layout=layout,
                stream=segment.stream,
                previous="" if _merges(row, i) else _previous(blocks, before),
                parameters=tuple(sorted({p for n in segment.nodes for p in n.parameters})),
                nodes=_nodes(row, i),
                start=before.end if before else 0,
                end=end.index,
            )
        )
        areas.append(block_area or area)
    return tuple(blocks)


def _stage(
    earlier: Sequence[tuple[Block, int | None]],
    before: Block | None,
    area: int | None,
    *,
    last: bool,
    resized: int,
) -> int:
    """One more where the grid shrinks; where it grows, as of the latest block of its size."""
    if before is None:
        return 0
    if resized < 0 and not last:
        same = (block.stage for block, size in reversed(earlier) if size == area)
        return next(same, max(0, before.stage - 1))
    return before.stage + (before.start == 0 or (resized > 0 and not last))


def _convolves(node: Node) -> bool:
    """Whether a node is a convolution, and not one that enlarges the grid."""
    return node.role == "conv" and not node.op.startswith("conv_transpose")


def _forward_order(graph: Graph, row: Sequence[Segment]) -> list[int]:
    """The number of blocks before each, on the longest way from the image to it."""
    order: dict[int, int] = {}
    for segment in row:
        inputs = {i for node in segment.nodes for i in graph.nodes[node.index].inputs}
        order[segment.end] = max((order[i] + 1 for i in inputs & order.keys()), default=0)
    return list(order.values())


def _merges(row: Sequence[Segment], i: int) -> bool:
    """Whether a segment merges several parallel streams, so that it continues none of them."""
    if row[i].stream:
        return False
    inputs = {source for node in row[i].nodes for source in node.inputs}
    return len({part.stream for part in row[:i] if part.stream and part.end in inputs}) > 1


def _previous(blocks: Sequence[Block], before: Block | None) -> str | None:
    """The name of the nearest block on a grid, if it is not the last one of `blocks`."""
    ends = {block.end: block for block in blocks}
    while before is not None and before.layout is None:
        before = ends.get(before.start)
    last = next((block for block in reversed(blocks) if block.layout is not None), None)
    if before is last:
        return None
    return before.name if before else ""


def _nodes(row: Sequence[Segment], i: int) -> tuple[int, ...]:
    """The nodes of a block; in a model without side inputs with those that nothing reads."""
    if any(after.start != before.end for before, after in itertools.pairwise(row)):
        return tuple(node.index for node in row[i].nodes)
    return tuple(range(row[i].start + 1, row[i].end + 1))


def _kind(
    graph: Graph, segment: Segment, reach: Reach, *, first: bool, last: bool, resized: int
) -> Kind:
    """The kind of a segment; `resized` is 1 where the grid shrinks, -1 where it grows."""
    if last:
        return "head"
    if first or segment.module == "tokens":
        return "stem"
    joined = any(part.nodes[-1].op in JOINS for part in segment.parts)
    residual = segment.module != "" or (segment.branches and not joined)
    if resized > 0 and not residual:
        return "downsample"
    if resized < 0 and not residual and not any(map(_convolves, segment.nodes)):
        return "upsample"
    return kind_of(graph, segment.nodes, reach)
