"""Ablations: the parts of a model that can be ablated, and partial passes without them.

A forward pass without a part starts at a cut: after a block that becomes the identity, before
a block of which a head or a convolution is ablated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.run.attention_weights import ablate_head
from visprism.anatomy.run.cached_forward import Recording, forward_from_cut
from visprism.anatomy.run.replaced_parts import ReplacedPart, Replacement
from visprism.anatomy.run.surgery import (
    ablate,
    convolutions_of,
    identity_of,
    without_convolution,
)
from visprism.anatomy.trace.forward import Images, forward
from visprism.core.errors import InputError


def quantized(weight: Tensor, bits: int) -> Tensor:
    """Weights rounded to a symmetric grid of 2^bits - 1 values for each output channel.

    With m = max |w| of a channel (first axis) and s = m / (2^(bits - 1) - 1) they are
    s round(w / s), rounded to nearest, ties to even.

    Example:
        >>> quantized(torch.tensor([[0.1, -0.7, 1.0], [0.0, 0.0, 0.0]]), 2)
        tensor([[ 0., -1.,  1.],
                [ 0.,  0.,  0.]])
    """
    rows = weight.flatten(1)
    levels = 2 ** (bits - 1) - 1
    scale = rows.abs().amax(1, keepdim=True) / levels
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return ((rows / scale).round() * scale).reshape(weight.shape)


def weights_of(anatomy: Anatomy, block: Block) -> list[str]:
    """Names of the weights of a block with an axis of output channels and one of inputs."""
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    return [n for n in block.parameters if n.endswith("weight") and parameters[n].ndim > 1]


@contextmanager
def quantize_weights(anatomy: Anatomy, block: Block, bits: int) -> Iterator[None]:
    """Inside, the weights of a block are quantized; on exit it has its original tensors.

    A parameter that two blocks share is quantized in both.
    """
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    weights = [parameters[name] for name in weights_of(anatomy, block)]
    original = [weight.data for weight in weights]
    try:
        for weight in weights:
            weight.data = quantized(weight.data, bits)
        yield
    finally:
        for weight, data in zip(weights, original, strict=True):
            weight.data = data


Surgery = Callable[[], AbstractContextManager[None]]
_WITHOUT_CONVOLUTIONS = frozenset({"attention", "mlp", "attention+mlp", "token-mixing"})


@dataclass(frozen=True)
class Ablation:
    """One part of a model, or several blocks, that are ablated."""

    blocks: tuple[Block, ...]
    ablated: str  # "block", "convolution", "head 3", "registers", ..., or "several"
    surgery: Surgery = field(repr=False)  # on a full pass
    cut: int = field(repr=False)  # node at which a partial pass starts
    source: int = field(repr=False)  # node whose tensor the partial pass starts with
    begin: Callable[[Tensor], Tensor] = field(repr=False)  # computes the tensor at the cut
    rest: Surgery = field(repr=False)  # on the partial pass

    def full_pass(self, anatomy: Anatomy, images: Images) -> Float[Tensor, "b k"]:
        """Logits of the ablated model, by a full forward pass."""
        with self.surgery():
            return forward(anatomy.model, images)

    def from_cut(
        self, anatomy: Anatomy, images: Images, recording: Recording
    ) -> Float[Tensor, "b k"]:
        """Logits of the ablated model, by a forward pass from the cut."""
        value = self.begin(recording.values[self.source])
        with forward_from_cut(anatomy, recording, self.cut, value), self.rest():
            return forward(anatomy.model, images)


def block_ablations(anatomy: Anatomy) -> tuple[list[Ablation], list[str]]:
    """Each block replaced by the identity, and why other blocks cannot be."""
    ablations, reasons = [], []
    for block in inner_blocks(anatomy):
        try:
            ablations.append(_of_block(anatomy, block))
        except InputError as error:
            reasons.append(str(error))
    return ablations, reasons


def convolution_ablations(anatomy: Anatomy) -> tuple[list[Ablation], list[str]]:
    """One spatial convolution of each convolutional block replaced by the identity.

    It is the first that keeps the shape of its input. Blocks of attention, MLP and token mixing
    have none: their spatial operation is the block itself.
    """
    blocks = convolutional_blocks(anatomy)
    first = [(block, convolutions_of(anatomy, block)[:1]) for block in blocks]
    return [_of_convolution(anatomy, b, node.index) for b, nodes in first for node in nodes], []


def convolutional_blocks(anatomy: Anatomy) -> list[Block]:
    """The inner blocks but those of attention, MLP and token mixing."""
    return [b for b in inner_blocks(anatomy) if b.kind not in _WITHOUT_CONVOLUTIONS]


def inner_blocks(anatomy: Anatomy) -> list[Block]:
    """All blocks but the first and the head."""
    return [block for block in anatomy if block.kind != "head" and block.start != 0]


def head_ablations(anatomy: Anatomy) -> tuple[list[Ablation], list[str]]:
    """Each head of each attention, numbered from 1, and why other heads cannot be ablated."""
    ablations, reasons = [], []
    for attention in attentions(anatomy):
        try:
            for head in range(1, attention.geometry.heads + 1):
                surgery = partial(ablate_head, anatomy, attention, head)
                with surgery():  # raises where it is impossible
                    pass
                number = attention.name.removeprefix(attention.block.name)
                name = f"head {head}{number and f' of {number}'}"
                ablations.append(_from_start(attention.block, name, surgery))
        except InputError as error:
            reasons.append(str(error))
    return ablations, reasons


def replaced_ablation(part: ReplacedPart, replacement: Replacement) -> Ablation:
    """An ablation in which the activations of a part are replaced."""
    return _from_start(part.block, part.name, partial(part.surgery, replacement))


def quantization(anatomy: Anatomy, block: Block, bits: int) -> Ablation:
    """A block whose weights are quantized."""
    surgery = partial(quantize_weights, anatomy, block, bits)
    return _from_start(block, f"{bits} bits", surgery)


def combine_ablations(ablations: Sequence[Ablation]) -> Ablation:
    """Several ablations together, of different blocks."""
    first, *others = sorted(ablations, key=lambda a: a.blocks[0].end)
    return Ablation(
        blocks=tuple(block for a in (first, *others) for block in a.blocks),
        ablated="several",
        surgery=partial(_all, [a.surgery for a in (first, *others)]),
        cut=first.cut,
        source=first.source,
        begin=first.begin,
        rest=partial(_all, [first.rest, *(a.surgery for a in others)]),
    )


def _of_block(anatomy: Anatomy, block: Block) -> Ablation:
    return Ablation(
        blocks=(block,),
        ablated="block",
        surgery=partial(ablate, anatomy, block),
        cut=block.end,
        source=block.start,
        begin=identity_of(anatomy, block),
        rest=nullcontext,
    )


def _of_convolution(anatomy: Anatomy, block: Block, node: int) -> Ablation:
    surgery = partial(without_convolution, anatomy, anatomy.graph.nodes[node])
    return _from_start(block, "convolution", surgery)


def _from_start(block: Block, ablated: str, surgery: Surgery) -> Ablation:
    return Ablation((block,), ablated, surgery, block.start, block.start, _same, surgery)


def _same(x: Tensor) -> Tensor:
    return x


@contextmanager
def _all(surgeries: Sequence[Surgery]) -> Iterator[None]:
    with ExitStack() as stack:
        for surgery in surgeries:
            stack.enter_context(surgery())
        yield


def ablation_cuts(ablations: Sequence[Ablation]) -> Mapping[int, None]:
    """The nodes whose tensors partial passes start at or with."""
    return dict.fromkeys(i for a in ablations for i in (a.cut, a.source))
