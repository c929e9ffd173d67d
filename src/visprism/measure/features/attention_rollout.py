"""Rollout: attention followed through all blocks of a model."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from visprism.anatomy import Anatomy, Attention, Images, attend, attentions, forward
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.features.attention_maps import key_map, provenance_of, single_image
from visprism.passes.tokens_of_the_head import described_readout, tokens_read
from visprism.results.attention import Rollout


def rollout(
    anatomy: Anatomy,
    images: Images,
    *,
    gradient: bool = False,
    target: int | None = None,
    run: Run = DEFAULT_RUN,
) -> Rollout:
    """Attention rollout: contribution of each position to the output through all blocks.

    R = product over blocks of (I + A) / 2, A the weights averaged over heads; with `gradient`
    R <- R + A' R with A' the mean over heads of (dy/dA * A), negative values set to 0, y the
    target's logit. The rollout is the mean of the rows of R over the tokens that the head
    reads: the class token, or the patches of a model that pools. Which ones those are is
    decided by the gradient of a logit. Costs two forward passes and a backward pass of the
    head, with `gradient` one backward pass of the model.

    Args:
        anatomy: of a model in evaluation mode whose tokens are the same in every attention.
        images: a batch of one image.
        gradient: follow what counts for one class.
        target: that class; the one that the model predicts by default.
        run: device and provenance; the precision must be "fp32".

    Sources: Abnar and Zuidema (2020), Quantifying attention flow in transformers; with the
    gradient Chefer et al. (2021), Generic attention-model explainability, eq. 5 and 6.
    """
    run.require_full_precision("rollout")
    images = single_image(anatomy, images, run)
    chosen = attentions(anatomy)
    for attention in chosen:
        _check_one_window(attention, chosen[0])
    with run.compute.borrow(anatomy.model):
        with torch.set_grad_enabled(gradient), attend(
            anatomy, lambda w: w.values, only=chosen, differentiable=gradient
        ) as weights_by_name:  # fmt: skip
            logits = forward(anatomy.model, images)
        weights = list(weights_by_name.values())
        if gradient:
            weights = _relevant(logits, weights, target)
        eye = torch.eye(weights[0].shape[-1]).to(weights[0])
        reached = eye
        for weight in weights:
            a = weight[0, 0].mean(0)
            reached = reached + a @ reached if gradient else (eye + a) / 2 @ reached
        read = tokens_read(anatomy, chosen[-1], images)
    geometry = chosen[0].geometry
    row = reached[torch.from_numpy(read)].mean(0)
    map_ = key_map(row[None], geometry, 0)[0]
    rows, columns = np.indices(map_.shape).reshape(2, -1)
    return Rollout(
        row=rows,
        column=columns,
        weight=map_.ravel(),
        method="gradient" if gradient else "attention",
        readout=described_readout(read, geometry.keys.index[0] == OFF_GRID),
        provenance=provenance_of(anatomy, run),
    )


def rollouts(
    anatomy: Anatomy, images: Images, *, run: Run = DEFAULT_RUN
) -> tuple[Rollout, ...]:
    """Both rollouts of one image, by attention and by gradient; none where tokens change.

    Windows, pooled and merged tokens have no rollout, see `rollout`.
    """
    chosen = attentions(anatomy)
    if not chosen or any(_other_tokens(attention, chosen[0]) for attention in chosen):
        return ()
    return tuple(rollout(anatomy, images, gradient=g, run=run) for g in (False, True))


def _relevant(logits: Tensor, weights: Sequence[Tensor], target: int | None) -> list[Tensor]:
    """The weights times the gradient of a class with respect to them, clipped at 0."""
    classes = logits.shape[-1]
    if target is None:
        target = int(logits[0].argmax())
    elif not 0 <= target < classes:
        raise InputError(f"target must be between 0 and {classes - 1}, got {target}")
    gradients = torch.autograd.grad(logits[0, target], weights)
    pairs = zip(weights, gradients, strict=True)
    return [(weight * gradient).clamp(min=0).detach() for weight, gradient in pairs]


def _other_tokens(attention: Attention, first: Attention) -> bool:
    """Whether an attention has windows, or tokens that are not those of the first one."""
    queries, keys = attention.geometry.queries.index, attention.geometry.keys.index
    tokens = first.geometry.keys.index
    same = np.array_equal(queries, keys) and np.array_equal(keys, tokens)
    return not same or len(keys) > 1


def _check_one_window(attention: Attention, first: Attention) -> None:
    """All its tokens attend to all, and are those of the first attention."""
    if _other_tokens(attention, first):
        raise InputError(
            f"all attention layers must have the same tokens for a rollout, and those of "
            f"{attention.name!r} differ from those of {first.name!r} (windows, pooled or "
            "merged tokens). Use attention_maps for single layers."
        )
