"""The graph of a model: which operation made which tensor in one forward pass."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

from torch import Tensor

from visprism.anatomy.trace.operations import Role
from visprism.anatomy.trace.token_grids import AttentionGeometry
from visprism.anatomy.trace.token_positions import Layout


@dataclass(frozen=True)
class Address:
    """Where a hook can read a tensor: what a module takes or gives, at its n-th call."""

    module: str
    call: int  # 0 for the module's first call in a forward pass
    side: str  # "input" or "output"
    key: int | str | None  # position or name among several; None: the output itself


@dataclass
class Node:
    """One call of a torch function."""

    index: int
    op: str
    role: Role
    module: str  # path of the innermost module that made the call
    call: int  # running number among the pass's torch functions that give tensors; -1: none
    inputs: tuple[int, ...]  # nodes that made its operands
    shape: tuple[int, ...] | None  # of the tensor it gives; None if it gives several
    parameters: tuple[str, ...] = ()
    layout: Layout | None = None
    mixes: bool = False  # whether it sums over positions, as far as is known
    pools: bool = False  # whether it gives one vector of a whole feature map
    macs: int = 0  # multiply-accumulate operations, of the whole batch
    geometry: AttentionGeometry | None = None  # of an attention, or of the scores of one
    axis: int | None = None  # that a softmax adds up to 1 along, counted from the end
    addresses: list[Address] = field(default_factory=list)

    @property
    def pooled(self) -> bool:
        """Whether the tensor holds one vector for each image: no positions are left."""
        return self.shape is not None and prod(self.shape[1:]) == max(self.shape[1:], default=1)


@dataclass(frozen=True)
class Span:
    """One call of a module: the nodes that came in and the node that went out."""

    module: str
    inputs: frozenset[int]
    output: int | None  # None: it gave several tensors, or none that depends on the image


@dataclass(frozen=True)
class Graph:
    """The trace of one forward pass. Node 0 is the image."""

    nodes: tuple[Node, ...]
    spans: tuple[Span, ...]
    calls: Mapping[str, int]  # how often each module was called
    output: int  # node that made the logits
    batch_size: int
    # What an earlier pass assigned to buffers, by their names: this pass did not compute it.
    caches: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def macs(self, indices: Iterable[int]) -> int:
        """Multiply-accumulates for one image of these nodes."""
        return sum(self.nodes[i].macs for i in indices) // self.batch_size

    def ancestors(self, index: int, inside: Container[int] | None = None) -> set[int]:
        """The node itself and every node that it depends on, as far as they lie `inside`."""
        indices, left = {index}, [index]
        while left:
            new = set(self.nodes[left.pop()].inputs) - indices
            if inside is not None:
                new = {i for i in new if i in inside}
            indices |= new
            left.extend(new)
        return indices
