"""Parts of a model whose activations can be replaced.

They are blocks, convolutions, heads and tokens.

A part gives its activations as (images, positions, channels), whatever the layout of the model,
and takes a replacement of the same shape. The activations of a block or a convolution are what
it adds to its input, output minus input, so that zero is the identity.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.attention import Attention, attentions
from visprism.anatomy.run.interception import fixed_image_size, intercept
from visprism.anatomy.run.surgery import exchange_output, identity_of
from visprism.anatomy.trace.graph import Node
from visprism.anatomy.trace.token_positions import Layout
from visprism.core.errors import InputError

# Activations of a part in, their replacement out; the same tensor leaves them as they are.
Replacement = Callable[[Float[Tensor, "b n d"]], Float[Tensor, "b n d"]]


@dataclass(frozen=True)
class ReplacedPart:
    """A part of a model, and how its activations are read and replaced."""

    block: Block
    name: str  # "block", "convolution", "head 3", "class tokens", "registers"
    # Positions with one number share a mean: positions of the grid, and each token off the
    # grid.
    groups: Int64[Tensor, " n"] = field(repr=False, compare=False)
    surgery: Callable[[Replacement], AbstractContextManager[None]] = field(
        repr=False, compare=False
    )


Parts = tuple[list[ReplacedPart], list[str]]  # and why others cannot be replaced


def block_parts(blocks: Sequence[Block], anatomy: Anatomy) -> Parts:
    """What each block adds to its input; blocks without an identity are left out."""
    parts, reasons = [], []
    for block in blocks:
        try:
            identity = identity_of(anatomy, block)
        except InputError as error:
            reasons.append(str(error))
            continue
        surgery = partial(_replace_added, anatomy, block, identity)
        groups = _groups(anatomy.graph.nodes[block.end])
        parts.append(ReplacedPart(block, "block", groups, surgery))
    return parts, reasons


def convolution_parts(blocks: Sequence[Block], anatomy: Anatomy) -> Parts:
    """What one spatial convolution of each block adds, the first that keeps the shape."""
    nodes, parts = anatomy.graph.nodes, []
    for block in blocks:
        convs = (n for n in anatomy.nodes(block) if n.role == "conv" and n.shape is not None)
        node = next((n for n in convs if nodes[n.inputs[0]].shape == n.shape), None)
        if node is not None:
            surgery = partial(_replace_convolved, anatomy, node)
            parts.append(ReplacedPart(block, "convolution", _groups(node), surgery))
    return parts, []


def head_parts(blocks: Sequence[Block], anatomy: Anatomy) -> Parts:
    """The output of each head of each attention, before the projection of all heads."""
    parts, reasons = [], []
    for attention in attentions(anatomy):
        if attention.block not in blocks:
            continue
        try:
            node = _weighted_values(anatomy, attention)
        except InputError as error:
            reasons.append(str(error))
            continue
        index = torch.from_numpy(attention.geometry.queries.index).flatten()
        number = attention.name.removeprefix(attention.block.name)
        for head in range(1, attention.geometry.heads + 1):
            name = f"head {head}{number and f' of {number}'}"
            surgery = partial(_replace_head, anatomy, attention, node, head)
            parts.append(ReplacedPart(attention.block, name, _numbered(index < 0), surgery))
    return parts, reasons


def token_parts(blocks: Mapping[Block, Sequence[str]], anatomy: Anatomy) -> Parts:
    """Tokens off the grid that leave each block: all of one role together."""
    parts = []
    for block, roles in blocks.items():
        off_grid = _groups(anatomy.graph.nodes[block.end]).nonzero()[:, 0]
        for role in dict.fromkeys(roles):
            tokens = off_grid[[i for i, r in enumerate(roles) if r == role]]
            name = "registers" if role == "register" else f"{role} tokens"
            surgery = partial(_replace_output, anatomy, block, (slice(None), tokens))
            parts.append(ReplacedPart(block, name, torch.arange(len(tokens)), surgery))
    return parts, []


def _groups(node: Node) -> Int64[Tensor, " n"]:
    """Group of each position of a tensor: 0 on the grid, one more for each token off it."""
    layout = node.layout
    if layout is None:
        return torch.zeros(1, dtype=torch.long)
    number = layout.tokens(torch.empty(node.shape or (), device="meta")).shape[1]
    off_grid = replace(layout, axes="b n c").off_grid(torch.arange(number)[None, :, None])
    groups = torch.zeros(number, dtype=torch.bool)
    groups[off_grid.flatten()] = True
    return _numbered(groups)


def _numbered(off_grid: Tensor) -> Int64[Tensor, " n"]:
    """0 on the grid, and 1, 2, ... for the tokens off it."""
    return off_grid.cumsum(0) * off_grid


def _positions(x: Tensor, layout: Layout | None) -> Float[Tensor, "b n c"]:
    """A tensor of the model as (images, positions, channels); one position without a grid."""
    return x.flatten(1)[:, None] if layout is None else layout.tokens(x)


def _as_in_model(
    positions: Float[Tensor, "b n c"], layout: Layout | None, shape: torch.Size
) -> Tensor:
    """The inverse of `_positions`, for a tensor of this shape."""
    if layout is not None and layout.axes == "b c h w":
        return positions.mT.reshape(shape)
    if layout is not None and layout.axes == "n b c":
        return positions.transpose(0, 1)
    return positions.reshape(shape)


def _replace_added(
    anatomy: Anatomy,
    block: Block,
    identity: Callable[[Tensor], Tensor],
    replacement: Replacement,
) -> AbstractContextManager[None]:
    """Inside, what a block adds to its input is replaced."""
    layout = anatomy.graph.nodes[block.end].layout

    def exchange(came: Tensor, out: Tensor) -> Tensor:
        return _exchanged_sum(out, identity(came), layout, replacement)

    return exchange_output(anatomy, block, exchange)


def _exchanged_sum(
    out: Tensor, came: Tensor, layout: Layout | None, replacement: Replacement
) -> Tensor:
    """`came` plus the replacement of `out - came`; `out` itself where nothing is replaced."""
    came = came.to(out.device)  # the block may begin on another device than it ends on
    added = _positions(out - came, layout)
    new = replacement(added)
    return out if new is added else came + _as_in_model(new, layout, out.shape)


@contextmanager
def _replace_convolved(
    anatomy: Anatomy, node: Node, replacement: Replacement
) -> Iterator[None]:
    """Inside, what a convolution adds to its input is replaced."""

    def exchange(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Tensor:
        came = args[0] if args else kwargs["input"]
        return _exchanged_sum(out, came, node.layout, replacement)

    with intercept(anatomy, calls={node.index: exchange}):
        yield


@contextmanager
def _replace_output(
    anatomy: Anatomy, block: Block, at: tuple[Any, ...], replacement: Replacement
) -> Iterator[None]:
    """Inside, some positions or channels of the output of a block are replaced."""
    layout = anatomy.graph.nodes[block.end].layout

    def exchange(out: Tensor) -> Tensor:
        positions = _positions(out, layout)
        values = positions[at]
        new = replacement(values)
        if new is values:
            return out
        positions = positions.clone()
        positions[at] = new
        return _as_in_model(positions, layout, out.shape)

    with intercept(anatomy, changes={block.end: exchange}):
        yield


@contextmanager
def _replace_head(
    anatomy: Anatomy, attention: Attention, node: Node, head: int, replacement: Replacement
) -> Iterator[None]:
    """Inside, the output of one head is replaced."""
    geometry = attention.geometry
    windows = len(geometry.queries.index)

    def exchange(out: Tensor) -> Tensor:
        by_head = geometry.weights(out)
        values = by_head[:, :, head - 1].flatten(1, 2)
        new = replacement(values)
        if new is values:
            return out
        by_head = by_head.clone()
        by_head[:, :, head - 1] = new.unflatten(1, (windows, -1))
        return geometry.tensor(by_head, out.shape)

    with (
        fixed_image_size(anatomy),
        intercept(anatomy, changes={node.index: exchange}),
    ):
        yield


def _weighted_values(anatomy: Anatomy, attention: Attention) -> Node:
    """The node that outputs all heads: the fused operation, or the last product."""
    graph, weights = anatomy.graph, anatomy.graph.nodes[attention.node]
    if weights.op == "scaled_dot_product_attention":
        return weights
    products = (
        node
        for node in graph.nodes[attention.node + 1 : attention.block.end + 1]
        if node.role == "bilinear" and attention.node in graph.ancestors(node.index)
    )
    product = next(products, None)
    if (
        product is None
        or weights.axis != -1
        or product.shape is None
        or weights.shape is None
        or product.shape[:-1] != weights.shape[:-1]
    ):
        raise InputError(
            f"{attention.name} must expose its heads, got an operation that computes heads and "
            "projection together. Ablate the block instead."
        )
    return product
