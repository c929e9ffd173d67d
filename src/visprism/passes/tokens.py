"""Tokens of a block: those on the grid, and class tokens and registers off it.

Papers use the same words for different tokens, so they are fixed by what the model does:

- class token: a token off the grid that the head reads (a distillation token too);
- register: a token off the grid that the head does not read;
- prefix token: a token off the grid of which that is not known.

Source: Darcet et al. (2024), Vision transformers need registers.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError
from visprism.passes.tokens_of_the_head import off_grid_tokens_read

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
    tokens. Costs a forward and backward pass of one image of noise, none without such tokens.
    """
    numbers = {
        block.name: _number_off_grid(anatomy, block)
        for block in anatomy
        if block.layout is not None
    }
    last = next((name for name in reversed(numbers) if numbers[name]), None)
    roles: tuple[Role, ...] = ()
    if last is not None:
        try:
            read = off_grid_tokens_read(anatomy, anatomy[last])
            roles = tuple("class" if r else "register" for r in read)
        except InputError:
            roles = ("prefix",) * numbers[last]
    return {n: roles if len(roles) == k else ("prefix",) * k for n, k in numbers.items()}


def _number_off_grid(anatomy: Anatomy, block: Block) -> int:
    shape, layout = anatomy.graph.nodes[block.end].shape, block.layout
    if layout is None or shape is None or "n" not in layout.axes:
        return 0
    height, width = layout.grid
    count = shape[0] if layout.axes == "n b c" else torch.Size(shape[1:-1]).numel()
    return count - height * width
