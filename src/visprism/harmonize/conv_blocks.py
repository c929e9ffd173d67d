"""Conv blocks: the residual blocks of a CNN that an MSA block can stand in for."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from visprism.anatomy import Anatomy, Block, Images, dissect
from visprism.anatomy.trace.graph import Node, Span
from visprism.anatomy.trace.operations import Role
from visprism.anatomy.trace.torch_functions import SUMS
from visprism.core.errors import InputError

_MAP = "b c h w"  # the layout that convolutions have
_BEHIND: frozenset[Role] = frozenset({"activation", "norm", "layout", "pointwise"})  # the sum


@dataclass(frozen=True)
class ConvBlock:
    """A residual block with a spatial convolution, and what stands in its place must keep."""

    name: str  # of the module
    stage: int  # 1 for the first stage that has such blocks
    in_chans: int
    out_chans: int
    width: int  # channels of its last spatial convolution
    stride: int
    grid: tuple[int, int]  # of its output
    post_activation: bool  # whether an activation follows the sum
    beside: tuple[str, ...] = ()  # blocks of its stage that are called several times, and stay


def conv_blocks(model: nn.Module, images: Images) -> tuple[ConvBlock, ...]:
    """The residual Conv blocks of a CNN in forward order, found by `dissect`.

    A block counts if one module holds it, is called once, takes and gives a (B, C, H, W) map,
    convolves over the grid and ends in a sum with its input, or with a projection of it: what
    comes there without a spatial convolution, or without an activation. Blocks that concatenate
    instead, as those of a DenseNet or an Inception, are none.

    Args:
        model: any CNN, in evaluation mode.
        images: a few, of the size that it is meant for.

    Raises:
        InputError: if there is no such block, or as `dissect`.
    """
    anatomy = dissect(model, images)
    found = [(block.stage, _described(anatomy, block)) for block in anatomy.blocks]
    residual = [(stage, facts) for stage, facts in found if facts is not None]
    calls = anatomy.graph.calls
    once = [(stage, facts) for stage, facts in residual if calls[facts["name"]] == 1]
    if not once:
        kinds = ", ".join(dict.fromkeys(block.kind for block in anatomy.blocks))
        raise InputError(
            f"{type(model).__name__} has no residual block with a convolution (its blocks are "
            f"{kinds}) on maps (B, C, H, W) that is called once and adds its input, so there "
            "is none that attention could replace; give a CNN such as a ResNet, RegNet or "
            "ConvNeXt"
        )
    stages = sorted({stage for stage, _ in once})
    shared = [(stage, facts["name"]) for stage, facts in residual if calls[facts["name"]] > 1]
    return tuple(
        ConvBlock(
            stage=stages.index(stage) + 1,
            beside=tuple(dict.fromkeys(name for other, name in shared if other == stage)),
            **facts,
        )
        for stage, facts in once
    )


def _described(anatomy: Anatomy, block: Block) -> dict | None:
    """What a `ConvBlock` says besides the stage; None for a block of another sort."""
    nodes = anatomy.graph.nodes
    inside = nodes[block.start + 1 : block.end + 1]
    if block.kind != "conv" or not all(_is_map(nodes[i]) for i in (block.start, block.end)):
        return None
    total = _sum_with_input(nodes, block)
    if total is None:
        return None
    own = [span.module for span in anatomy.graph.spans if _is_whole(span, block)]
    own = [name for name in own if name == total.module]
    before, after = nodes[block.start].shape, nodes[block.end].shape
    width = _width(anatomy.model, inside)
    if not own or before is None or after is None or width is None:
        return None
    return {
        "name": own[0],
        "in_chans": before[1],
        "out_chans": after[1],
        "width": width,
        "stride": round(before[2] / after[2]),
        "grid": (after[2], after[3]),
        "post_activation": inside[-1].role == "activation",
    }


def _sum_with_input(nodes: Sequence[Node], block: Block) -> Node | None:
    """The sum that a block ends in, if one of its terms is what came in, or a projection."""
    last = nodes[block.end]
    while last.role in _BEHIND and len(last.inputs) == 1 and last.inputs[0] > block.start:
        last = nodes[last.inputs[0]]
    if last.role != "merge" or last.op not in SUMS or last.shape != nodes[block.end].shape:
        return None
    ways: tuple[Role, ...] = ("conv", "activation")
    shortcut = any(
        _reaches(nodes, term, block.start, without) for term in last.inputs for without in ways
    )
    return last if shortcut else None


def _reaches(nodes: Sequence[Node], term: int, start: int, without: Role) -> bool:
    """Whether a way leads from `start` to `term` with nothing of the role `without` on it."""
    left, seen = [term], set()
    while left:
        index = left.pop()
        if index == start:
            return True
        if index > start and index not in seen and nodes[index].role != without:
            left.extend(nodes[index].inputs)
        seen.add(index)
    return False


def _is_map(node: Node) -> bool:
    return node.layout is not None and node.layout.axes == _MAP


def _is_whole(span: Span, block: Block) -> bool:
    return span.inputs == {block.start} and span.output == block.end


def _width(model: nn.Module, inside: tuple[Node, ...]) -> int | None:
    """Channels of the last spatial convolution of a block."""
    named = dict(model.named_parameters())
    kernels = [
        named[parameter]
        for node in inside
        if node.role == "conv"
        for parameter in node.parameters
        if named[parameter].ndim == 4
    ]
    return len(kernels[-1]) if kernels else None
