"""Ablations: forward passes of a model without some of its parts.

A partial pass starts at the input of the first block that is changed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.run.cached_forward import Recording, forward_from_cut
from visprism.anatomy.run.replaced_parts import ReplacedPart, Replacement, block_parts
from visprism.anatomy.trace.forward import Images, forward


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
    surgery: Surgery = field(repr=False)
    cut: int = field(repr=False)  # node at which a partial pass starts

    def full_pass(self, anatomy: Anatomy, images: Images) -> Float[Tensor, "b k"]:
        """Logits of the ablated model, by a full forward pass."""
        with self.surgery():
            return forward(anatomy.model, images)

    def from_cut(
        self, anatomy: Anatomy, images: Images, recording: Recording
    ) -> Float[Tensor, "b k"]:
        """Logits of the ablated model, by a forward pass from the cut."""
        with forward_from_cut(anatomy, recording, self.cut), self.surgery():
            return forward(anatomy.model, images)


def block_ablations(anatomy: Anatomy) -> list[Ablation]:
    """Each block replaced by the identity, where that is possible."""
    parts, _ = block_parts(inner_blocks(anatomy), anatomy)
    return [replaced_ablation(part, torch.zeros_like) for part in parts]


def convolutional_blocks(anatomy: Anatomy) -> list[Block]:
    """The inner blocks except attention, MLP and token mixing."""
    return [b for b in inner_blocks(anatomy) if b.kind not in _WITHOUT_CONVOLUTIONS]


def inner_blocks(anatomy: Anatomy) -> list[Block]:
    """All blocks but the first and the head."""
    return [block for block in anatomy if block.kind != "head" and block.start != 0]


def replaced_ablation(part: ReplacedPart, replacement: Replacement) -> Ablation:
    """An ablation in which the activations of a part are replaced."""
    surgery = partial(part.surgery, replacement)
    return Ablation((part.block,), part.name, surgery, part.block.start)


def quantization(anatomy: Anatomy, block: Block, bits: int) -> Ablation:
    """A block whose weights are quantized, in every block that shares one of them."""
    surgery = partial(quantize_weights, anatomy, block, bits)
    weights = set(weights_of(anatomy, block))
    starts = [other.start for other in anatomy if weights.intersection(other.parameters)]
    return Ablation((block,), f"{bits} bits", surgery, min(starts, default=block.start))


def combine_ablations(ablations: Sequence[Ablation]) -> Ablation:
    """Several ablations together, of different blocks."""
    ordered = sorted(ablations, key=lambda a: a.blocks[0].end)
    return Ablation(
        blocks=tuple(block for a in ordered for block in a.blocks),
        ablated="several",
        surgery=partial(_all, [a.surgery for a in ordered]),
        cut=min(a.cut for a in ablations),
    )


@contextmanager
def _all(surgeries: Sequence[Surgery]) -> Iterator[None]:
    with ExitStack() as stack:
        for surgery in surgeries:
            stack.enter_context(surgery())
        yield
