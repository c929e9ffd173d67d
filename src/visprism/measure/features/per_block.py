"""Blocks as rows: the columns that describe a block, and means over the blocks of one kind."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from visprism.anatomy import Block


def block_columns(blocks: Sequence[Block]) -> dict[str, Any]:
    """The columns of `PerBlock`, one row for each of `blocks`, which may repeat."""
    return {
        "block": np.array([b.name for b in blocks]),
        "kind": np.array([b.kind for b in blocks]),
        "stage": np.array([b.stage for b in blocks]),
        "depth": np.array([b.depth for b in blocks]),
        "subsampling": np.array([b.subsampling for b in blocks]),
        "stream": streams_of(blocks),
    }


def streams_of(blocks: Sequence[Block]) -> np.ndarray | int:
    """The column of the streams, or 0 where there is only one."""
    streams = np.array([b.stream for b in blocks], dtype=int)
    return streams if streams.any() else 0


def predecessors(blocks: Sequence[Block], between: Mapping[str, str]) -> dict[str, Any]:
    """The columns `previous` and `between` of one row per block.

    Args:
        blocks: that were observed, in forward order.
        between: names of the blocks off the grid before a block, by its name.
    """
    pairs = blocks_before(blocks).items()
    return {
        "previous": np.array([p.name if p and on_one_grid(b, p) else "" for b, p in pairs]),
        "between": np.array([between.get(b.name, "") for b in blocks]),
    }


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


def on_one_grid(block: Block, before: Block | None) -> bool:
    """Whether two blocks' feature maps have the same height and width."""
    return before is not None and grid_of(block) == grid_of(before)


def kind_means(
    changes: Mapping[Block, Float[np.ndarray, "b"]], between: Mapping[str, str]
) -> dict[str, Float[np.ndarray, "b"]]:
    """Mean change across the blocks of each kind, by image.

    It is not finite for an image whose change is not finite in one of the blocks. Blocks that
    subsample or come after blocks off the grid do not count.
    """
    by_kind: dict[str, list[np.ndarray]] = {}
    for block, change in changes.items():
        if not block.subsampling and block.name not in between:
            by_kind.setdefault(block.kind, []).append(change)
    return {kind: np.mean(members, axis=0) for kind, members in by_kind.items()}


def image_sums(values: Float[np.ndarray, "*b"]) -> Float[np.ndarray, "3"]:
    """Number, sum and sum of squares of the values that are finite."""
    finite = values[np.isfinite(values)]
    return np.array([len(finite), finite.sum(), (finite**2).sum()])
