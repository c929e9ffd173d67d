"""Conv blocks: the residual blocks of a CNN that an MSA block can replace, and their choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.trace.forward import Images
from visprism.anatomy.trace.graph import Node
from visprism.anatomy.trace.operations import SUMS, Role
from visprism.core.errors import InputError

_MAP = "b c h w"  # the layout that convolutions have
_RULES = ("alternate", "end-of-stage")

# A rule, the names of blocks, or the number of blocks per stage.
Placement = Literal["alternate", "end-of-stage"] | Sequence[str] | Sequence[int]

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


def conv_blocks(model: nn.Module, images: Images) -> tuple[ConvBlock, ...]:
    """The residual Conv blocks of a CNN in forward order, found by `dissect`.

    A block counts if it is one module that is called once, maps (B, C, H, W) to (B, C, H, W),
    convolves over the grid and ends in a sum with its input or a projection of it: a term
    without a spatial convolution, or without an activation. Blocks that concatenate, such as
    in a DenseNet or an Inception, do not count.

    The model must be in evaluation mode, and a few images of the size of its input suffice.
    """
    anatomy = dissect(model, images)
    calls = anatomy.graph.calls
    described = [(block.stage, _fields(anatomy, block)) for block in anatomy.blocks]
    residual = [
        (stage, values) for stage, values in described if values and calls[values["name"]] == 1
    ]
    if not residual:
        kinds = ", ".join(dict.fromkeys(block.kind for block in anatomy.blocks))
        raise InputError(
            "model must have a residual block with a spatial convolution that is called once, "
            f"and {type(model).__name__} has none (its blocks are {kinds}). Use a CNN such as "
            "ResNet, RegNet or ConvNeXt."
        )
    stages = sorted({stage for stage, _ in residual})
    return tuple(
        ConvBlock(stage=stages.index(stage) + 1, **values) for stage, values in residual
    )


def _fields(anatomy: Anatomy, block: Block) -> dict | None:
    """The fields of a `ConvBlock` besides the stage; None for other blocks."""
    nodes = anatomy.graph.nodes
    inside = anatomy.nodes(block)
    layouts = nodes[block.start].layout, nodes[block.end].layout
    if block.kind != "conv" or any(n is None or n.axes != _MAP for n in layouts):
        return None
    total = _sum_with_input(nodes, block)
    if total is None:
        return None
    inputs, output = {block.start}, block.end
    spans = [s for s in anatomy.graph.spans if (s.inputs, s.output) == (inputs, output)]
    modules = [span.module for span in spans if span.module == total.module]
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


def select_blocks(blocks: Sequence[ConvBlock], placement: Placement) -> tuple[str, ...]:
    """The names of the blocks that `placement` selects, in forward order.

    "alternate" is the last block of each stage and every second one before it, and
    "end-of-stage" the last block of each stage. Numbers, one per stage, are that many blocks,
    the last one and every second one before it, as in Alter-ResNet. Names are these blocks.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.1.
    """
    stages = [
        [block.name for block in blocks if block.stage == stage]
        for stage in sorted({block.stage for block in blocks})
    ]
    most = [(len(names) + 1) // 2 for names in stages]
    if isinstance(placement, str) and placement in _RULES:
        counts = most if placement == "alternate" else [1] * len(stages)
    elif placement and all(type(number) is int for number in placement):
        counts = [int(number) for number in placement]
        if len(counts) != len(stages) or any(
            not 0 <= number <= limit for number, limit in zip(counts, most, strict=True)
        ):
            raise InputError(
                f"placement must have one number per stage, at most {most}, which are every "
                f"second of {list(map(len, stages))} blocks, got {tuple(counts)}"
            )
    else:
        available = [block.name for block in blocks]
        names = [placement] if isinstance(placement, str) else list(map(str, placement))
        unknown = [name for name in names if name not in available]
        if unknown or len(set(names)) < len(names):
            raise InputError(
                f"placement must be {' or '.join(map(repr, _RULES))}, one number per stage, or "
                f"names of residual Conv blocks ({', '.join(available)}), got "
                f"{repr(unknown[0]) if unknown else 'a name twice'}"
            )
        return tuple(sorted(names, key=available.index))
    return tuple(
        name
        for names, number in zip(stages, counts, strict=True)
        for name in sorted(names[::-1][: 2 * number : 2], key=names.index)
    )
