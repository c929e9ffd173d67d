"""Conv blocks: the residual blocks of a CNN that an MSA block can stand in for."""

from dataclasses import dataclass

from torch import nn

from visprism.anatomy import Anatomy, Block, Images, dissect
from visprism.anatomy.graph import Node, Span
from visprism.errors import InputError

_MAP = "b c h w"  # the layout that convolutions have


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


def conv_blocks(model: nn.Module, images: Images) -> tuple[ConvBlock, ...]:
    """The residual Conv blocks of a CNN in forward order, found by `dissect`.

    A block counts if one module holds it, is called once, takes and gives a (B, C, H, W) map,
    convolves over the grid and adds its input, or a projection of it.

    Args:
        model: any CNN, in evaluation mode.
        images: a few, of the size that it is meant for.

    Raises:
        InputError: if there is no such block, or as `dissect`.
    """
    anatomy = dissect(model, images)
    found = [(block, _described(anatomy, block)) for block in anatomy.blocks]
    residual = [(block.stage, facts) for block, facts in found if facts is not None]
    if not residual:
        kinds = ", ".join(dict.fromkeys(block.kind for block in anatomy.blocks))
        raise InputError(
            f"{type(model).__name__} has no residual block with a convolution (its blocks are "
            f"{kinds}) on maps (B, C, H, W), so there is none that attention could replace; "
            "give a CNN such as a ResNet, RegNet or ConvNeXt"
        )
    stages = sorted({stage for stage, _ in residual})
    return tuple(ConvBlock(stage=stages.index(stage) + 1, **facts) for stage, facts in residual)


def _described(anatomy: Anatomy, block: Block) -> dict | None:
    """What a `ConvBlock` says besides the stage; None for a block of another sort."""
    nodes = anatomy.graph.nodes
    inside = nodes[block.start + 1 : block.end + 1]
    if block.kind != "conv" or not all(_is_map(nodes[i]) for i in (block.start, block.end)):
        return None
    sums = [node for node in inside if node.role == "merge" and node.shape == inside[-1].shape]
    spans = [span for span in anatomy.graph.spans if _is_whole(span, block)]
    if not sums or not spans:
        return None
    own = [span.module for span in spans if span.module == sums[-1].module]
    own = [name for name in own if anatomy.graph.calls[name] == 1]
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
