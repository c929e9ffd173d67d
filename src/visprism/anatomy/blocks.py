"""Blocks: the parts of a model that the residual stream passes through, in forward order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from visprism.anatomy.graph import Graph
from visprism.anatomy.layout import Layout
from visprism.errors import InputError

Kind = Literal[
    "stem", "conv", "attention", "mlp", "attention+mlp", "token-mixing", "downsample", "head"
]


@dataclass(frozen=True)
class Block:
    """One part of a model: the stretch of its graph between two cuts."""

    name: str  # of the module that does the work, e.g. "layer3.0" or "blocks.5.attn"
    kind: Kind
    stage: int  # 0 for the stem, then one more each time that the grid shrinks
    depth: float  # 0 for the stem ... 1 for the last block before the head
    subsampling: bool  # its grid is smaller than that of the block before
    shape: tuple[int, ...]  # (C, H, W) of its feature map; without a layout, of its output
    layout: Layout | None  # None: its output does not lie on a grid (as the head's)
    parameters: tuple[str, ...] = field(default=(), repr=False)  # names, as the model has them
    start: int = field(default=0, repr=False)  # node of the graph whose output comes in
    end: int = field(default=0, repr=False)  # node of the graph whose output goes out


@dataclass(frozen=True)
class Anatomy(Sequence[Block]):
    """The blocks of one model, in forward order; `dissect` makes one."""

    model: nn.Module
    blocks: tuple[Block, ...]
    graph: Graph = field(repr=False)

    def __getitem__(self, index):  # noqa: ANN001, ANN204
        """A block by position or by name; a slice gives a tuple of blocks.

        Raises:
            InputError: if no block has this name.
        """
        if isinstance(index, str):
            for block in self.blocks:
                if block.name == index:
                    return block
            known = ", ".join(block.name for block in self.blocks)
            raise InputError(f"no block is called {index!r}; the blocks are {known}")
        return self.blocks[index]

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)
