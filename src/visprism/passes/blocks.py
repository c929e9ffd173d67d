"""Blocks as rows: the columns that describe a block, and the blocks before each."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from visprism.anatomy.blocks.anatomy import Block

T = TypeVar("T")


def block_columns(blocks: Sequence[Block]) -> dict[str, Any]:
    """The columns of `PerBlock`, one row for each of `blocks`, which may repeat."""
    streams = np.array([b.stream for b in blocks], dtype=int)
    return {
        "block": np.array([b.name for b in blocks]),
        "kind": np.array([b.kind for b in blocks]),
        "stage": np.array([b.stage for b in blocks]),
        "depth": np.array([b.depth for b in blocks]),
        "subsampling": np.array([b.subsampling for b in blocks]),
        "stream": streams if streams.any() else 0,
    }


def source_columns(sources: Sequence[Any]) -> dict[str, Any]:
    """The columns of `PerBlock`, one row for each block or attention."""
    columns = block_columns([getattr(source, "block", source) for source in sources])
    return columns | {"block": np.array([source.name for source in sources])}


def pair_columns(first: Sequence[Block], other: Sequence[Block]) -> dict[str, Any]:
    """The columns of `BlockMatrix`, one row for each pair; the first block changes slowest."""
    columns = block_columns([block for block in first for _ in other])
    others = block_columns(list(other) * len(first))
    names = {"block": "other"} | {c: f"other_{c}" for c in ("kind", "stage", "depth")}
    return columns | {new: others[name] for name, new in names.items()}


def blocks_before(blocks: Iterable[Block]) -> dict[Block, Block | None]:
    """The block before each of several: in its stream, or else in forward order."""
    row = list(blocks)
    by_name = {block.name: block for block in row}
    return {
        block: before if block.previous is None else by_name.get(block.previous)
        for before, block in itertools.pairwise([None, *row])
        if block is not None
    }


def grid_of(block: Block) -> tuple[int, int]:
    """Height and width of a block's feature map."""
    _, height, width = block.shape
    return height, width


def spread(blocks: Sequence[T], number: int) -> list[T]:
    """Some of the blocks, spread evenly over the depth; the last one is among them."""
    places = np.linspace(len(blocks) - 1, 0, min(number, len(blocks))).round().astype(int)
    return [blocks[i] for i in sorted(set(places.tolist()))]


@dataclass(frozen=True)
class Neighbors:
    """Blocks that were observed, in forward order, and what stands before each.

    Changes across a block refer to the block before it where both have one grid.
    """

    blocks: Sequence[Block]
    between: Mapping[str, str]  # names of the blocks off the grid before a block, by its name

    @property
    def previous(self) -> list[Block | None]:
        """The block on the same grid that a change refers to; None if there is none."""
        return [
            before if before is not None and grid_of(before) == grid_of(block) else None
            for block, before in blocks_before(self.blocks).items()
        ]

    @property
    def same_shape(self) -> Bool[np.ndarray, " blocks"]:
        """Whether a block's feature map has the shape of the one that it refers to."""
        pairs = zip(self.blocks, self.previous, strict=True)
        return np.array([p is not None and b.shape == p.shape for b, p in pairs], dtype=bool)

    def columns(self) -> dict[str, Any]:
        """The columns `previous` and `between`, one row per block."""
        return {
            "previous": np.array([p.name if p else "" for p in self.previous]),
            "between": np.array([self.between.get(b.name, "") for b in self.blocks]),
        }

    def before(
        self, values: Float[np.ndarray, "n blocks *_"]
    ) -> Float[np.ndarray, "n blocks *_"]:
        """The values of the block before each; NaN where there is none."""
        place = {block: i for i, block in enumerate(self.blocks)}
        rows = [-1 if p is None else place[p] for p in self.previous]
        shifted = values[:, rows].astype(np.float64)
        shifted[:, [i for i, row in enumerate(rows) if row < 0]] = np.nan
        return shifted

    @property
    def kinds(self) -> list[str]:
        """The kind of each block."""
        return [block.kind for block in self.blocks]

    @property
    def eligible(self) -> Bool[np.ndarray, " blocks"]:
        """Whether a block counts in means by kind: neither subsampling nor after a gap."""
        return np.array(
            [not b.subsampling and b.name not in self.between for b in self.blocks], dtype=bool
        )
