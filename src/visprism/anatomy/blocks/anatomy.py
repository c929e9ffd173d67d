"""Anatomy: the blocks of a model in forward order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from torch import nn

from visprism.anatomy.blocks.kinds import Kind
from visprism.anatomy.blocks.reach import Reach
from visprism.anatomy.trace.forward import Images
from visprism.anatomy.trace.graph import Graph, Node
from visprism.anatomy.trace.operations import WORK
from visprism.anatomy.trace.token_positions import Layout
from visprism.core.errors import InputError
from visprism.estimates.findings import Finding
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import PerBlock


@result_type("costs", "Anatomy")
class Costs(PerBlock):
    """Parameters and arithmetic of a model; one row per block, in forward order.

    Each bar is a block; its height is the side of its spatial grid and its color the kind.
    The strips below show multiply-accumulates and parameters.
    """

    channels: np.ndarray = column("Channels", "", "channels of its output")
    height: np.ndarray = column(
        "Height", "positions", "height of its spatial grid; 1 where its output has none"
    )
    width: np.ndarray = column(
        "Width", "positions", "width of its spatial grid; 1 where its output has none"
    )
    parameters: np.ndarray = column(
        "Parameters", "", "parameters that the block is the first to read"
    )
    macs: np.ndarray = column("MACs", "per image", "multiply-accumulate operations")
    distinct_parameters: int = scalar(
        "Distinct parameters", "", "parameters of the model, shared ones counted once"
    )

    def sentences(self) -> Iterator[str | Finding]:
        """Size of the model."""
        kinds, counts = np.unique(self.kind, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        blocks = ", ".join(f"{counts[i]} {kinds[i]}" for i in order)
        streams = len({*np.ravel(self.stream).tolist()} - {0})
        parallel = f" in {streams} parallel streams" if streams else ""
        yield (
            f"{len(self)} blocks{parallel} ({blocks}), "
            f"{short(float(self.distinct_parameters))} parameters, "
            f"{short(float(self.macs.sum()))} MACs per image"
        )


def map_size(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width of an output; height and width 1 without a spatial grid."""
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else ([1, *shape][-1], 1, 1)


def short(number: float) -> str:
    """With a decimal prefix: 4.09 G."""
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}"
    return f"{number:g}"


@dataclass(frozen=True)
class Block:
    """One part of a model: the segment of its graph between two cuts of one stream."""

    name: str  # of the module that does the work, e.g. "layer3.0" or "blocks.5.attn"
    kind: Kind
    stage: int  # 0 for the stem, then one more each time that the grid shrinks
    depth: float  # 0 for the stem ... 1 for the last block before the head
    subsampling: bool  # its grid is smaller than the previous block's
    shape: tuple[int, ...]  # (C, H, W) of its feature map; without a layout, of its output
    layout: Layout | None  # None: its output has no spatial grid (such as the head's)
    stream: int = 0  # 0 for what everything passes through; parallel streams from 1
    operator: str = ""  # what moves information between positions: "attention", "scan", ...
    reach: Reach = "unknown"  # how far it goes: "none", "local", "causal", "global"
    # Name of the block on a grid that it continues; None: the one before it in forward order;
    # "": none, as for the first one and where parallel streams merge.
    previous: str | None = None
    parameters: tuple[str, ...] = field(default=(), repr=False)  # names, as the model has them
    nodes: tuple[int, ...] = field(default=(), repr=False)  # of the graph
    start: int = field(default=0, repr=False)  # node of the graph whose output comes in
    end: int = field(default=0, repr=False)  # node of the graph whose output goes out


# No block of an ordinary network holds so much of its operations and of its arithmetic.
_MOST = 0.5
_FEW = 0.01  # of the parameters


@dataclass(frozen=True)
class Anatomy:
    """The blocks of one model, in forward order; `dissect` makes one."""

    model: nn.Module
    blocks: tuple[Block, ...]
    graph: Graph = field(repr=False)
    image: Images = field(repr=False, compare=False)  # that it was dissected with, in a batch

    @overload
    def __getitem__(self, index: int | str) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Block, ...]: ...
    def __getitem__(self, index: int | str | slice) -> Block | tuple[Block, ...]:
        """A block by position or by name; a slice gives a tuple of blocks."""
        if isinstance(index, str):
            for block in self.blocks:
                if block.name == index:
                    return block
            names = ", ".join(block.name for block in self.blocks)
            raise InputError(f"unknown block {index!r}. The blocks are {names}.")
        return self.blocks[index]

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W) of the images that the model was dissected with."""
        return tuple(self.graph.nodes[0].shape or ())[1:]

    def nodes(self, block: Block) -> tuple[Node, ...]:
        """The nodes of the graph that a block consists of, in forward order."""
        return tuple(self.graph.nodes[i] for i in block.nodes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats for every result about these blocks, in sentences."""
        notes = []
        off_grid = [b.name for b in self.blocks[1:-1] if b.layout is None]
        if off_grid:
            notes.append(
                f"Not on a grid, and therefore not shown: {', '.join(off_grid)} (their "
                "positions in the image are unknown)."
            )
        nodes = [self.nodes(block) for block in self.blocks]
        hidden = [
            b.name
            for b, inside in zip(self.blocks, nodes, strict=True)
            if any(node.role == "opaque" for node in inside)
        ]
        if hidden:
            notes.append(
                f"The inside of {', '.join(hidden)} is hidden from torch (a scripted module or "
                "foreign code), so its kind is unknown."
            )
        read = {name for block in self.blocks for name in block.parameters}
        unread = {n: p.numel() for n, p in self.model.named_parameters() if n not in read}
        total = sum(p.numel() for p in self.model.parameters())
        if sum(unread.values()) > _FEW * total:
            modules = dict.fromkeys(name.partition(".")[0] for name in unread)
            notes.append(
                f"Not on the way to the output, and therefore not shown: parameters of "
                f"{', '.join(modules)} ({sum(unread.values()) / total:.0%} of all)."
            )
        sampled = [b.name for b in self.blocks if "grid sampling" in b.operator]
        if sampled:
            notes.append(
                f"{', '.join(sampled)} samples at positions that the image may choose: its "
                "grid is the grid of the samples."
            )
        operations = [sum(node.role in WORK for node in inside) for inside in nodes]
        macs = [self.graph.macs(b.nodes) for b in self.blocks]
        for block, many, much in zip(self.blocks[:-1], operations, macs, strict=False):
            if many > _MOST * sum(operations) and much > _MOST * sum(macs):
                notes.append(
                    f"{block.name} holds {much / sum(macs):.0%} of the arithmetic: streams run "
                    "in parallel in it, so the blocks inside it cannot be distinguished."
                )
        return tuple(notes)

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __repr__(self) -> str:
        kinds = Counter(block.kind for block in self.blocks)
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        shape = "x".join(map(str, self.image_shape))
        return f"<Anatomy of {type(self.model).__name__}: {counts}; images of {shape}>"

    def _repr_html_(self) -> str:
        return costs(self)._repr_html_()


def costs(anatomy: Anatomy) -> Costs:
    """Parameters and multiply-accumulates of each block, for one image.

    Matrix products, convolutions and attention are counted, elementwise operations are not, as
    in published tables of FLOPs (4.1 G for ResNet-50). A parameter that several blocks
    share is counted in the first. The counts were taken when the model was dissected.
    """
    numbers = {name: p.numel() for name, p in anatomy.model.named_parameters()}
    left = dict(numbers)
    sizes = np.array([map_size(block.shape) for block in anatomy])
    streams = np.array([b.stream for b in anatomy])
    return Costs(
        stream=streams if streams.any() else 0,
        block=np.array([b.name for b in anatomy]),
        kind=np.array([b.kind for b in anatomy]),
        stage=np.array([b.stage for b in anatomy]),
        depth=np.array([b.depth for b in anatomy]),
        subsampling=np.array([b.subsampling for b in anatomy]),
        channels=sizes[:, 0],
        height=sizes[:, 1],
        width=sizes[:, 2],
        parameters=np.array([sum(left.pop(p, 0) for p in b.parameters) for b in anatomy]),
        macs=np.array([anatomy.graph.macs(b.nodes) for b in anatomy]),
        distinct_parameters=sum(numbers.values()),
    )
