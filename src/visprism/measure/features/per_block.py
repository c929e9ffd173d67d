"""Results with rows for blocks: the columns that say which block a row is about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from visprism.anatomy import Block
from visprism.results.base import Result, column, result_type


@result_type("per-block")
class PerBlock(Result):
    """One or more rows for each block, in forward order."""

    block: np.ndarray = column("Block", "", "its name")
    kind: np.ndarray = column("Kind", "", "'conv', 'attention', ...")
    stage: np.ndarray = column(
        "Stage", "", "0 for the stem, then one more each time that the grid shrinks"
    )
    depth: np.ndarray = column(
        "Depth", "", "0 for the stem ... 1 for the last block before the head"
    )
    subsampling: np.ndarray = column(
        "Subsampling", "", "whether its grid is smaller than that of the block before"
    )


def described(blocks: Sequence[Block]) -> dict[str, Any]:
    """The columns of `PerBlock`, one row for each of `blocks`, which may repeat."""
    return {
        "block": np.array([b.name for b in blocks]),
        "kind": np.array([b.kind for b in blocks]),
        "stage": np.array([b.stage for b in blocks]),
        "depth": np.array([b.depth for b in blocks]),
        "subsampling": np.array([b.subsampling for b in blocks]),
    }


def grid_of(block: Block) -> tuple[int, int]:
    """Height and width of a block's feature map."""
    _, height, width = block.shape
    return height, width


def on_one_grid(block: Block, before: Block | None) -> bool:
    """Whether two blocks' feature maps have the same height and width."""
    return before is not None and grid_of(block) == grid_of(before)
