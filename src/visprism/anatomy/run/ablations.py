"""Removals: what can be taken out of a model, and how to run it without, from a cut on.

A removal that begins at a cut is run from there: of a block that becomes the identity nothing
but what follows it, of a head or a convolution the block that holds it and what follows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.run.attention_weights import ablate_head
from visprism.anatomy.run.cached_forward import Recording, forward_from_cut
from visprism.anatomy.run.surgery import (
    ablate,
    convolutions_of,
    identity_of,
    without_convolution,
)
from visprism.anatomy.trace.forward import Images, forward
from visprism.core.errors import InputError

Surgery = Callable[[], AbstractContextManager[None]]
# Kinds of block whose lesion is that of the whole block, the spatial operation being most of
# what it does.
_WHOLE = frozenset({"attention", "mlp", "attention+mlp", "token-mixing"})


@dataclass(frozen=True)
class Ablation:
    """One thing, or several, taken out of a model."""

    blocks: tuple[Block, ...]
    removed: str  # "block", "convolution", "head 3"
    surgery: Surgery = field(repr=False)  # on a whole pass
    cut: int = field(repr=False)  # node that a pass without it can begin at
    source: int = field(repr=False)  # node whose tensor the pass begins with
    begin: Callable[[Tensor], Tensor] = field(repr=False)  # makes that tensor
    rest: Surgery = field(repr=False)  # on a pass that begins there

    def full_pass(self, anatomy: Anatomy, images: Images) -> Float[Tensor, "b k"]:
        """The logits without it, by a whole pass."""
        with self.surgery():
            return forward(anatomy.model, images)

    def from_cut(
        self, anatomy: Anatomy, images: Images, recording: Recording
    ) -> Float[Tensor, "b k"]:
        """The logits without it, by the part of a pass behind the cut."""
        value = self.begin(recording.values[self.source])
        with forward_from_cut(anatomy, recording, self.cut, value), self.rest():
            return forward(anatomy.model, images)


def block_ablations(
    anatomy: Anatomy, *, whole: Sequence[str] = tuple(_WHOLE)
) -> tuple[list[Ablation], list[str]]:
    """One removal for each block, and why others have none.

    A block of a kind in `whole` becomes the identity. Of another, as of a bottleneck, one
    convolution goes, if one keeps the shape of what comes in; otherwise the block.
    """
    found, reasons = [], []
    for block in anatomy:
        if block.kind == "head" or block.start == 0:
            continue  # there is no model without these
        convolutions = () if block.kind in whole else convolutions_of(anatomy, block)
        try:
            if convolutions:
                found.append(_of_convolution(anatomy, block, convolutions[0].index))
            else:
                found.append(_of_block(anatomy, block))
        except InputError as error:
            reasons.append(str(error))
    return found, reasons


def head_ablations(anatomy: Anatomy) -> tuple[list[Ablation], list[str]]:
    """One removal for each head of each attention, and why others have none."""
    found, reasons = [], []
    for attention in attentions(anatomy):
        try:
            for head in range(1, attention.geometry.heads + 1):
                surgery = partial(ablate_head, anatomy, attention, head)
                with surgery():  # whether it can be
                    pass
                number = attention.name.removeprefix(attention.block.name)
                name = f"head {head}{number and f' of {number}'}"
                found.append(_from_start(attention.block, name, surgery))
        except InputError as error:
            reasons.append(str(error))
    return found, reasons


def combine_ablations(removals: Sequence[Ablation]) -> Ablation:
    """Several removals at once, of different blocks."""
    first, *others = sorted(removals, key=lambda r: r.blocks[0].end)
    return Ablation(
        blocks=tuple(block for r in (first, *others) for block in r.blocks),
        removed="several",
        surgery=partial(_all, [r.surgery for r in (first, *others)]),
        cut=first.cut,
        source=first.source,
        begin=first.begin,
        rest=partial(_all, [first.rest, *(r.surgery for r in others)]),
    )


def _of_block(anatomy: Anatomy, block: Block) -> Ablation:
    return Ablation(
        blocks=(block,),
        removed="block",
        surgery=partial(ablate, anatomy, block),
        cut=block.end,
        source=block.start,
        begin=identity_of(anatomy, block),
        rest=nullcontext,
    )


def _of_convolution(anatomy: Anatomy, block: Block, node: int) -> Ablation:
    surgery = partial(without_convolution, anatomy, anatomy.graph.nodes[node])
    return _from_start(block, "convolution", surgery)


def _from_start(block: Block, removed: str, surgery: Surgery) -> Ablation:
    return Ablation((block,), removed, surgery, block.start, block.start, _same, surgery)


def _same(x: Tensor) -> Tensor:
    return x


@contextmanager
def _all(surgeries: Sequence[Surgery]) -> Iterator[None]:
    with ExitStack() as stack:
        for surgery in surgeries:
            stack.enter_context(surgery())
        yield


def ablation_cuts(removals: Sequence[Ablation]) -> Mapping[int, None]:
    """The nodes whose tensors passes begin at or with."""
    return dict.fromkeys(i for r in removals for i in (r.cut, r.source))
