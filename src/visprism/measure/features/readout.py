"""Readout: the tokens whose output the head of a model reads.

They are a class token, two of them, the mean over the patches or a register, and the order of
the tokens does not show which. The gradient of a logit with respect to the tokens that leave
the last attention block is exactly 0 for tokens that are not read.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Images, forward
from visprism.anatomy.run.interception import intercept
from visprism.anatomy.trace.layout import Layout
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.core.errors import InputError


def tokens_read(
    anatomy: Anatomy, attention: Attention, images: Images
) -> Bool[np.ndarray, "tokens"]:
    """Whether the head reads each token of an attention, by the gradient of the largest logit.

    Costs one forward pass, and one backward pass from the head to the attention's block.

    Args:
        anatomy: of a model in evaluation mode.
        attention: the last of the model, without windows; in the order of its keys.
        images: a batch of one image, on the model's device.

    Raises:
        InputError: if the model cannot be differentiated from there on, or the tokens of the
            block are not those of the attention.
    """
    layout = anatomy.graph.nodes[attention.block.end].layout
    index = attention.geometry.keys.index
    if layout is None or len(index) > 1:
        raise _unknown(attention, "its tokens could not be followed")
    tokens: list[Tensor] = []

    def cut(x: Tensor) -> Tensor:
        tokens[:] = [x.detach().clone().requires_grad_()]
        return tokens[0]

    with torch.enable_grad(), intercept(anatomy, reads={}, changes={attention.block.end: cut}):
        logits = forward(anatomy.model, images).flatten(1)
        if not logits.requires_grad:
            raise _unknown(attention, "the head does not depend on it, or is under no_grad")
        (gradient,) = torch.autograd.grad(logits[0].max(), tokens)
    on_grid, off_grid = _read(gradient, layout)
    outside = index[0] == OFF_GRID
    if outside.sum() != len(off_grid) or index[0].max(initial=-1) >= len(on_grid):
        raise _unknown(attention, "its tokens are not those of its block")
    read = np.zeros(len(outside), dtype=bool)
    read[outside] = off_grid
    read[~outside] = on_grid[index[0][~outside]]
    if not read.any():
        raise _unknown(attention, "the gradient of the largest logit is 0 for all of them")
    return read


def _read(
    gradient: Float[Tensor, "..."], layout: Layout
) -> tuple[Bool[np.ndarray, "places"], Bool[np.ndarray, "others"]]:
    """Whether the gradient is not 0 at each place of the grid, and at each token off it."""
    on_grid = (layout.to_map(gradient)[0] != 0).any(0).flatten().cpu().numpy()
    if layout.axes in ("b c h w", "b h w c"):
        return on_grid, np.zeros(0, dtype=bool)
    tokens = gradient.transpose(0, 1) if layout.axes == "n b c" else gradient.flatten(1, -2)
    count = tokens.shape[1]
    places = layout.order or range(layout.num_prefix_tokens, count - layout.num_suffix_tokens)
    others = sorted(set(range(count)) - set(places))
    return on_grid, (tokens[0, others] != 0).any(1).cpu().numpy()


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
