"""Surgery: watch or change a model inside a ``with`` block; afterwards it is unchanged.

`watch` reads with ordinary forward hooks, at full speed. `replace` and `ablate` change the
tensor that leaves a block at the very operation that makes it, found by its number in the
trace, so that they work on any architecture; the model then runs under a `TorchFunctionMode`,
eagerly. Operations may be nested in any order: feature maps are collected after all changes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import prod
from typing import TypeVar

import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.run.interception import Read, fixed_image_size, intercept, module_hook
from visprism.anatomy.trace.graph import Node
from visprism.anatomy.trace.token_positions import Layout
from visprism.core.errors import InputError

T = TypeVar("T")


def watch(
    anatomy: Anatomy,
    keep: Callable[[Tensor], T] = torch.clone,
    *,
    blocks: Iterable[Block] | None = None,
) -> AbstractContextManager[dict[str, T]]:
    """Collect something of each block's feature map of the latest forward pass, by block name.

    Args:
        anatomy: of the model that will run.
        keep: applied to the feature map (B, C, H, W) at once, inside the forward pass. It must
            return new memory: a later layer may change the tensor in place.
        blocks: which to watch; all that have a layout by default.

    Returns:
        A context manager, inside which each forward pass fills the dictionary that it gives.
    """

    def on_grid(_block: Block, layout: Layout, x: Tensor) -> T:
        return keep(layout.to_map(x))

    return _reading(anatomy, on_grid, blocks)


def watch_tokens(
    anatomy: Anatomy,
    keep: Callable[[Block, Tensor, Tensor], T],
    *,
    blocks: Iterable[Block] | None = None,
) -> AbstractContextManager[dict[str, T]]:
    """Like `watch`, with the tokens that lie off the grid."""

    def all_tokens(block: Block, layout: Layout, x: Tensor) -> T:
        return keep(block, layout.to_map(x), layout.off_grid(x))

    return _reading(anatomy, all_tokens, blocks)


@contextmanager
def _reading(
    anatomy: Anatomy, keep: Callable[[Block, Layout, Tensor], T], blocks: Iterable[Block] | None
) -> Iterator[dict[str, T]]:
    """Collect something of the tensor that leaves each block with a layout, by block name."""
    collected: dict[str, T] = {}
    hidden: dict[int, Read] = {}  # no module takes or gives these tensors
    chosen = anatomy.blocks if blocks is None else tuple(blocks)
    with ExitStack() as stack:
        if any(b.layout is not None and "n" in b.layout.axes for b in chosen):
            stack.enter_context(fixed_image_size(anatomy))
        for block in chosen:
            _check_block(anatomy, block)
            if block.layout is None:
                continue

            def read(x: Tensor, block: Block = block, layout: Layout = block.layout) -> None:
                collected[block.name] = keep(block, layout, x)

            node = anatomy.graph.nodes[block.end]
            if node.addresses:
                stack.enter_context(module_hook(anatomy, node, read))
            else:
                hidden[node.index] = read
        if hidden:
            stack.enter_context(intercept(anatomy, reads=hidden))
        yield collected


def replace(
    anatomy: Anatomy, block: Block, function: Callable[[Tensor], Tensor]
) -> AbstractContextManager[None]:
    """Inside, `block` computes ``function(x)`` of the tensor that comes into it.

    `x` is as the model holds it (tokens, channels last); see `Block.layout`. The operations of
    the block still run; their result is dropped.
    """
    _check_block(anatomy, block)

    def exchange(came: Tensor, out: Tensor) -> Tensor:
        new = function(came)
        if new.shape != out.shape:
            raise InputError(
                f"the output of function must have shape {tuple(out.shape)}, as block "
                f"{block.name!r} has, got {tuple(new.shape)}"
            )
        return new

    return exchange_output(anatomy, block, exchange)


@contextmanager
def exchange_output(
    anatomy: Anatomy, block: Block, exchange: Callable[[Tensor, Tensor], Tensor]
) -> Iterator[None]:
    """Inside, `block` gives ``exchange(x, out)`` of what comes into it and what it computes."""
    came_in: list[Tensor] = []

    def remember(x: Tensor) -> None:
        came_in[:] = [x.clone()]  # a later operation may change it in place

    changes = {block.end: lambda out: exchange(came_in.pop(), out)}
    with intercept(anatomy, reads={block.start: remember}, changes=changes):
        yield


def ablate(anatomy: Anatomy, block: Block) -> AbstractContextManager[None]:
    """Replace one block by the identity: inside, it returns its input unchanged.

    Source: Veit et al. (2016), Residual networks behave like ensembles, sec. 4.1.
    """
    return replace(anatomy, block, identity_of(anatomy, block))


def identity_of(anatomy: Anatomy, block: Block) -> Callable[[Tensor], Tensor]:
    """The identity in place of a block, as a function of its input."""
    _check_block(anatomy, block)
    before, after = (anatomy.graph.nodes[i] for i in (block.start, block.end))
    if not _has_identity(before, after):
        raise InputError(
            f"block {block.name!r} ({block.kind}) must keep the shape of its feature map to be "
            f"ablated, and it maps {before.shape} to {after.shape}"
        )
    came, goes = before.layout, after.layout

    def identity(x: Tensor) -> Tensor:
        if came is not None and goes is not None and came.axes != goes.axes:
            x = came.to_map(x)  # the same numbers, tokens on one side and a grid on the other
            x = x if goes.axes == "b c h w" else x.permute(0, 2, 3, 1)
        return x if before.shape == after.shape else x.reshape(len(x), *(after.shape or ())[1:])

    return identity


def _check_block(anatomy: Anatomy, block: Block) -> None:
    if block not in anatomy.blocks:
        raise InputError(
            f"block must be of this anatomy, got {block.name!r} of another. Use anatomy[name]."
        )


def _has_identity(before: Node, after: Node) -> bool:
    """Whether two tensors hold feature maps of one shape, if with other axes."""
    came, goes = before.layout, after.layout
    if came is None or goes is None or before.shape is None or after.shape is None:
        return before.shape == after.shape
    as_goes = Layout(
        goes.axes, came.grid, came.num_prefix_tokens, came.num_suffix_tokens, came.order
    )
    return as_goes == goes and prod(before.shape[1:]) == prod(after.shape[1:])
