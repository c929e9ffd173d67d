"""Rollout: attention followed through all blocks of a model."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Images, attend, attentions, forward
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.core.errors import InputError
from visprism.measure.features.attention_maps import check_one, on_grid, provenance_of
from visprism.results.base import Result, result_type, scalar
from visprism.results.base import column as quantity


@result_type("rollout")
class Rollout(Result):
    """Which places reach the output through the attention of all blocks; a row for each."""

    row: np.ndarray = quantity("Row", "", "of the grid")
    column: np.ndarray = quantity("Column")
    weight: np.ndarray = quantity("Weight")
    method: str = scalar("Method", "", "'attention', or 'gradient'")


def rollout(
    anatomy: Anatomy,
    images: Images,
    *,
    gradient: bool = False,
    target: int | None = None,
) -> Rollout:
    """How much each place reaches the output, when attention is followed through all blocks.

    R = product over blocks of (I + A) / 2, A the weights averaged over heads; with `gradient`
    R <- R + A' R with A' the mean over heads of (dy/dA * A), negative parts cut off, y the
    target's logit. Of R the row of the class token is given, or without one the mean over
    places. Costs one forward pass, and with `gradient` one backward pass.

    Args:
        anatomy: of a model in evaluation mode whose tokens are the same in every attention.
        images: a batch of one image.
        gradient: follow what counts for one class.
        target: that class; the one that the model predicts by default.

    Raises:
        InputError: if there is no attention, more than one image, no such class, or the tokens
            differ from attention to attention, as with windows.

    Sources: Abnar and Zuidema (2020), Quantifying attention flow in transformers; with the
    gradient Chefer et al. (2021), Generic attention-model explainability, eq. 5 and 6.
    """
    check_one(images)
    chosen = attentions(anatomy)
    for attention in chosen:
        _check_one_row(attention, chosen[0])
    with torch.set_grad_enabled(gradient), attend(
        anatomy, lambda w: w.values, only=chosen, differentiable=gradient
    ) as kept:  # fmt: skip
        logits = forward(anatomy.model, images)
    weights = list(kept.values())
    if gradient:
        weights = _relevant(logits, weights, target)
    own = chosen[0].geometry
    eye = torch.eye(weights[0].shape[-1]).to(weights[0])
    reached = eye
    for weight in weights:
        a = weight[0, 0].mean(0)
        reached = reached + a @ reached if gradient else (eye + a) / 2 @ reached
    index = own.keys.index[0]
    from_class = index[0] == OFF_GRID
    row = reached[0] if from_class else reached[torch.from_numpy(index != OFF_GRID)].mean(0)
    map_ = on_grid(row[None], own, 0)[0]
    rows, columns = np.indices(map_.shape).reshape(2, -1)
    return Rollout(
        row=rows,
        column=columns,
        weight=map_.ravel(),
        method="gradient" if gradient else "attention",
        provenance=provenance_of(anatomy),
    )


def _relevant(logits: Tensor, weights: Sequence[Tensor], target: int | None) -> list[Tensor]:
    """The weights times the gradient of a class with respect to them, where it is positive."""
    classes = logits.shape[-1]
    if target is None:
        target = int(logits[0].argmax())
    elif not 0 <= target < classes:
        raise InputError(f"target is {target}; the model has classes 0 to {classes - 1}")
    gradients = torch.autograd.grad(logits[0, target], weights)
    pairs = zip(weights, gradients, strict=True)
    return [(weight * gradient).clamp(min=0).detach() for weight, gradient in pairs]


def _check_one_row(attention: Attention, first: Attention) -> None:
    """Whether all its tokens attend to all, and are those of the first attention."""
    queries, keys = attention.geometry.queries.index, attention.geometry.keys.index
    own = first.geometry.keys.index
    if not (np.array_equal(queries, keys) and np.array_equal(keys, own) and len(keys) == 1):
        raise InputError(
            f"the tokens of {attention.name!r} are not those of {first.name!r} (windows, "
            "pooled or merged tokens), so attention cannot be rolled out; look at single "
            "attentions with attention_maps"
        )
