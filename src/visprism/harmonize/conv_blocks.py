"""Conv blocks: the residual blocks of a CNN that an MSA block can replace."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from visprism.anatomy import Anatomy, Block, Images, dissect
from visprism.anatomy.trace.graph import Node, Span
from visprism.anatomy.trace.operations import Role
from visprism.anatomy.trace.torch_functions import SUMS
from visprism.core.errors import InputError

_MAP = "b c h w"  # the layout that convolutions have
_AFTER_SUM: frozenset[Role] = frozenset({"activation", "norm", "layout", "pointwise"})


@dataclass(frozen=True)
class ConvBlock:
    """A residual block with a spatial convolution, and what its replacement must preserve."""

    name: str  # of the module
    stage: int  # 1 for the first stage that has such blocks
    in_chans: int
    out_chans: int
    width: int  # channels of its last spatial convolution
    stride: int
    grid: tuple[int, int]  # of its output
    post_activation: bool  # whether an activation follows the sum
    repeated: tuple[str, ...] = ()  # blocks of its stage that are called several times


def conv_blocks(model: nn.Module, images: Images) -> tuple[ConvBlock, ...]:
    """The residual Conv blocks of a CNN in forward order, found by `dissect`.

    A block counts if it is one module that is called once, maps (B, C, H, W) to (B, C, H, W),
    convolves over the grid and ends in a sum with its input or a projection of it: a term
    without a spatial convolution, or without an activation. Blocks that concatenate, such as
    those of a DenseNet or an Inception, do not count.

    Args:
        model: any CNN, in evaluation mode.
        images: a few, of the size of the model's input.
    """
    anatomy = dissect(model, images)
    described = [(block.stage, _fields(anatomy, block)) for block in anatomy.blocks]
    residual = [(stage, values) for stage, values in described if values is not None]
    calls = anatomy.graph.calls
    once = [(stage, values) for stage, values in residual if calls[values["name"]] == 1]
    if not once:
        kinds = ", ".join(dict.fromkeys(block.kind for block in anatomy.blocks))
        raise InputError(
            "model must have a residual block with a spatial convolution that is called once, "
            f"and {type(model).__name__} has none (its blocks are {kinds}). Use a CNN such as "
            "ResNet, RegNet or ConvNeXt."
        )
    stages = sorted({stage for stage, _ in once})
    repeated = [
        (stage, values["name"]) for stage, values in residual if calls[values["name"]] > 1
    ]
    return tuple(
        ConvBlock(
            stage=stages.index(stage) + 1,
            repeated=tuple(dict.fromkeys(name for other, name in repeated if other == stage)),
            **values,
        )
        for stage, values in once
    )


def _fields(anatomy: Anatomy, block: Block) -> dict | None:
    """The fields of a `ConvBlock` besides the stage; None for other blocks."""
    nodes = anatomy.graph.nodes
    inside = anatomy.nodes(block)
    if block.kind != "conv" or not all(_is_map(nodes[i]) for i in (block.start, block.end)):
        return None
    total = _sum_with_input(nodes, block)
    if total is None:
        return None
    modules = [span.module for span in anatomy.graph.spans if _covers(span, block)]
    modules = [name for name in modules if name == total.module]
    before, after = nodes[block.start].shape, nodes[block.end].shape
    width = _width(anatomy.model, inside)
    if not modules or before is None or after is None or width is None:
        return None
    return {
        "name": modules[0],
        "in_chans": before[1],
        "out_chans": after[1],
        "width": width,
        "stride": round(before[2] / after[2]),
        "grid": (after[2], after[3]),
        "post_activation": inside[-1].role == "activation",
    }


def _sum_with_input(nodes: Sequence[Node], block: Block) -> Node | None:
    """The sum that a block ends in, if one of its terms is the input or a projection."""
    last = nodes[block.end]
    while last.role in _AFTER_SUM and len(last.inputs) == 1 and last.inputs[0] > block.start:
        last = nodes[last.inputs[0]]
    if last.role != "merge" or last.op not in SUMS or last.shape != nodes[block.end].shape:
        return None
    roles: tuple[Role, ...] = ("conv", "activation")
    shortcut = any(
        _reaches(nodes, term, block.start, without) for term in last.inputs for without in roles
    )
    return last if shortcut else None


def _reaches(nodes: Sequence[Node], term: int, start: int, without: Role) -> bool:
    """Whether a path leads from `start` to `term` without a node of the role `without`."""
    pending, visited = [term], set()
    while pending:
        index = pending.pop()
        if index == start:
            return True
        if index > start and index not in visited and nodes[index].role != without:
            pending.extend(nodes[index].inputs)
        visited.add(index)
    return False


def _is_map(node: Node) -> bool:
    return node.layout is not None and node.layout.axes == _MAP


def _covers(span: Span, block: Block) -> bool:
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
