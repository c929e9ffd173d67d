"""Replacements of activations: zero, their mean, or those of another image.

Source: Morcos et al. (2018), On the importance of single directions for generalization, sec. 2
(zero and mean of channels); Li and Janson (2024), Optimal ablation for interpretability, sec. 2
(a comparison of replacements).
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Anatomy, ReplacedPart, Replacement, forward
from visprism.core.errors import InputError
from visprism.core.processes import gather, share
from visprism.core.run import Run
from visprism.passes.batches import Batch, labeled


def replacements(
    anatomy: Anatomy,
    parts: Sequence[ReplacedPart],
    batches: Iterable[Batch],
    *,
    replacement: str,
    run: Run,
) -> list[Replacement]:
    """What replaces the activations of each part.

    "zero" is 0. "mean" is the mean over images and positions, of each channel; each token off
    the grid has its own mean over images. It costs one forward pass over the images. "shuffle"
    gives each image the activations of the image before it in its batch, and the first image
    those of the last; images must be in random order.

    Args:
        anatomy: of a model in evaluation mode.
        parts: whose activations are replaced.
        batches: each is (images, targets).
        replacement: "zero", "mean" or "shuffle".
        run: device, precision and progress.
    """
    if replacement == "mean" and parts:
        means = _means(anatomy, parts, batches, run)
        return [partial(_constant, mean) for mean in means]
    return [torch.zeros_like if replacement == "zero" else _previous_image] * len(parts)


def _constant(
    value: Float[Tensor, "n d"], activations: Float[Tensor, "b n d"]
) -> Float[Tensor, "b n d"]:
    return value.to(activations).expand_as(activations)


def _previous_image(activations: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    if len(activations) < 2:
        raise InputError(
            "batches must hold at least two images where activations are shuffled, got one. "
            "Choose another batch size."
        )
    return activations.roll(1, 0)


def _means(
    anatomy: Anatomy, parts: Sequence[ReplacedPart], batches: Iterable[Batch], run: Run
) -> list[Float[Tensor, "n d"]]:
    """The mean activations of each part at each position, equal within a group of positions."""
    sums: list[Tensor | float] = [0.0] * len(parts)
    images = 0

    def add(index: int, activations: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        groups = parts[index].groups.to(activations.device)
        total = activations.double().sum(0)
        by_group = total.new_zeros(int(groups.max()) + 1, total.shape[1])
        sums[index] = sums[index] + by_group.index_add(0, groups, total)
        return activations

    shared = share(batches)
    with torch.no_grad(), run.compute.borrow(anatomy.model), ExitStack() as stack:
        for index, part in enumerate(parts):
            stack.enter_context(part.surgery(partial(add, index)))
        for batch in run.track(shared, "mean activations"):
            pixels, targets = labeled(batch, run.compute)
            images += len(targets)
            with run.compute.autocast():
                forward(anatomy.model, pixels)
    gathered = gather((images, [s.cpu() if isinstance(s, Tensor) else s for s in sums]))
    total_images = sum(number for number, _ in gathered)
    if not total_images:
        raise InputError("data must hold at least one image, got none")
    means = []
    for index, part in enumerate(parts):
        total = sum(process[index] for _, process in gathered)
        positions = torch.bincount(part.groups)[:, None]
        means.append((total / (positions * total_images))[part.groups])
    return means
