"""Tokens of a block: those on the grid, and class tokens and registers off it.

Papers use the same words for different tokens, so they are fixed by what the model does:

- class token: a token off the grid that the head reads (a distillation token too);
- register: a token off the grid that the head does not read;
- prefix token: a token off the grid of which that is not known.

Source: Darcet et al. (2024), Vision transformers need registers.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.blocks.attention import Attention
from visprism.anatomy.run.interception import intercept
from visprism.anatomy.trace.forward import Images, forward, placed
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.anatomy.trace.token_positions import Layout
from visprism.core.errors import InputError


def tokens_read(
    anatomy: Anatomy, attention: Attention, images: Images
) -> Bool[np.ndarray, "tokens"]:
    """Whether the head reads each token of an attention, by the gradient of the largest logit.

    Costs one forward pass, and one backward pass from the head to the attention's block.
    """
    layout = anatomy.graph.nodes[attention.block.end].layout
    index = attention.geometry.keys.index
    if layout is None or len(index) > 1:
        raise _unknown(attention, "its tokens could not be followed")
    gradient = _gradient(anatomy, attention.block, images)
    if gradient is None:
        raise _unknown(attention, "the head does not depend on it, or is under no_grad")
    on_grid, off_grid = _read(gradient, layout)
    outside = index[0] == OFF_GRID
    if outside.sum() != len(off_grid) or index[0].max(initial=-1) >= len(on_grid):
        raise _unknown(attention, "its tokens are not its block's tokens")
    read = np.zeros(len(outside), dtype=bool)
    read[outside] = off_grid
    read[~outside] = on_grid[index[0][~outside]]
    if not read.any():
        raise _unknown(attention, "the gradient of the largest logit is 0 for all of them")
    return read


def _gradient(anatomy: Anatomy, block: Block, images: Images) -> Tensor | None:
    """Gradient of the largest logit of the first image with respect to a block's output.

    None if the logits do not depend on it, or have no gradient for it.
    """
    tokens: list[Tensor] = []

    def cut(x: Tensor) -> Tensor:
        tokens[:] = [x.detach().clone().requires_grad_()]
        return tokens[0].clone()  # a model may change it in place

    with torch.enable_grad(), intercept(anatomy, reads={}, changes={block.end: cut}):
        logits = forward(anatomy.model, images).flatten(1)
        if not logits.requires_grad:
            return None
        (gradient,) = torch.autograd.grad(logits[0].max(), tokens, allow_unused=True)
    return gradient


def _read(
    gradient: Float[Tensor, "..."], layout: Layout
) -> tuple[Bool[np.ndarray, "places"], Bool[np.ndarray, "others"]]:
    """Whether the gradient is not 0 at each place of the grid, and at each token off it."""
    on_grid = (layout.to_map(gradient)[0] != 0).any(0).flatten().cpu().numpy()
    return on_grid, (layout.off_grid(gradient)[0] != 0).any(1).cpu().numpy()


def _unknown(attention: Attention, reason: str) -> InputError:
    return InputError(
        f"the tokens of {attention.name!r} that the head reads are not known: {reason}. Use "
        "attention_maps with query='mean'."
    )


def described_readout(
    read: Bool[np.ndarray, "tokens"], outside: Bool[np.ndarray, "tokens"]
) -> str:
    """The tokens that are read, in words."""
    off, on = int((read & outside).sum()), int((read & ~outside).sum())
    if not on:
        return "class token" if off == 1 else f"{off} tokens off the grid"
    patches = f"mean over {on} of {int((~outside).sum())} places"
    return f"{patches} and {off} tokens off the grid" if off else patches


Role = Literal["class", "register", "prefix"]
Group = Literal["grid", "class", "register", "prefix"]  # the tokens that are compared
GROUPS: tuple[Group, ...] = ("grid", "class", "register", "prefix")


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens that leave one block, for a batch of images."""

    block: Block
    grid: Float[Tensor, "b c h w"]
    off_grid: Float[Tensor, "b p c"]
    roles: tuple[Role, ...]  # of each token off the grid

    @property
    def groups(self) -> tuple[Group, ...]:
        """Group of each token of `every`."""
        grid: Group = "grid"
        return (*self.roles, *[grid] * self.grid[0, 0].numel())

    @property
    def every(self) -> Float[Tensor, "b n c"]:
        """All tokens: those off the grid, then the grid row by row. A copy of both."""
        return torch.cat([self.off_grid, self.grid.flatten(2).mT], dim=1)


def token_roles(anatomy: Anatomy) -> dict[str, tuple[Role, ...]]:
    """Role of each token off the grid, by name of the block.

    The head reads a token if the gradient of the largest logit with respect to it, at the last
    block that has tokens off the grid, is not 0. Where the model has no vector of logits, or
    cannot be differentiated, and in blocks with another number of such tokens, all are prefix
    tokens. Costs a forward and backward pass of one image, none without such tokens.
    """
    numbers = {
        block.name: _number_off_grid(anatomy, block)
        for block in anatomy
        if block.layout is not None
    }
    last = next((name for name in reversed(numbers) if numbers[name]), None)
    roles: tuple[Role, ...] = ()
    shape = anatomy.graph.nodes[anatomy.graph.output].shape
    if last is not None and shape and len(shape) <= 2:
        block, parameter = anatomy[last], next(anatomy.model.parameters())
        gradient = _gradient(anatomy, block, placed(anatomy.image, parameter.device))
        if gradient is not None and block.layout is not None:
            _, read = _read(gradient, block.layout)
            roles = tuple("class" if r else "register" for r in read)
    return {n: roles if len(roles) == k else ("prefix",) * k for n, k in numbers.items()}


def _number_off_grid(anatomy: Anatomy, block: Block) -> int:
    shape, layout = anatomy.graph.nodes[block.end].shape, block.layout
    if layout is None or shape is None or "n" not in layout.axes:
        return 0
    height, width = layout.grid
    count = shape[0] if layout.axes == "n b c" else torch.Size(shape[1:-1]).numel()
    return count - height * width
