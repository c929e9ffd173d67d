"""The same images with and without each ablation of a model, and what replaces its parts.

Each batch runs through the full model once, and the tensors at its cuts are kept. An ablation
then computes only what follows it: of n equal blocks n / 2 forward passes in all. Memory
holds the tensors of one batch at all cuts.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.run.ablations import Ablation
from visprism.anatomy.run.cached_forward import cache_cuts, can_start_at
from visprism.anatomy.run.replaced_parts import ReplacedPart, Replacement
from visprism.anatomy.trace.forward import Images, forward, part_of, pixels
from visprism.core.devices import in_float64
from visprism.core.errors import InputError
from visprism.core.processes import gather, share
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.passes.batches import Batch, check_evaluation_mode, labeled, positioned
from visprism.passes.perturbed import Paired
from visprism.passes.predictions import Predictions

_TRIAL_IMAGES = 2  # images on which partial forward passes are compared with full ones


def ablated_outcomes(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    ablations: Sequence[Ablation],
    *,
    label: str,
    run: Run,
) -> tuple[Paired, set[int], Provenance]:
    """The outcomes of each image without and with each ablation.

    Where a model does not return the same logits on a partial pass, full passes are run.
    """
    check_evaluation_mode(anatomy.model)
    run = run.on(anatomy.model)
    paired = Paired(len(ablations))
    partial: set[int] | None = None  # cuts at which a forward pass can start
    shape, largest = (), 0
    shared = share(batches)
    ticks = run.ticks(shared, 1 + len(ablations), label)
    with torch.no_grad(), run.compute.borrow(anatomy.model), ticks as tick:
        for start, batch in positioned(shared):
            images, targets = labeled(batch, run.compute)
            shape, largest = tuple(pixels(images).shape[1:]), max(largest, len(targets))
            with run.compute.autocast():
                if partial is None:
                    trial = part_of(images, 0, _TRIAL_IMAGES)
                    partial = can_start_at(anatomy, trial, [a.cut for a in ablations])
                _add(paired, anatomy, ablations, partial, images, targets, start, tick)
    paired = paired.gathered()
    provenance = run.measured(images=paired.images, batch_size=largest, image_shape=shape)
    return paired, partial or set(), provenance


def _add(
    paired: Paired,
    anatomy: Anatomy,
    ablations: Sequence[Ablation],
    partial: set[int],
    images: Images,
    targets: Int64[Tensor, " b"],
    start: int,
    tick: Callable[[], None],
) -> None:
    """Add the outcomes of one batch; a tick before each pass."""
    tick()
    from_cut = [a for a in ablations if a.cut in partial]
    if from_cut:
        recording = cache_cuts(anatomy, images, {a.cut for a in from_cut})
        logits = recording.logits
    else:
        recording, logits = None, forward(anatomy.model, images)
    logits = logits.float().cpu()
    paired.reference(Predictions(logits, targets).logits, targets, start)  # checks both
    for column, ablated in enumerate(ablations):
        tick()
        if recording is not None and ablated.cut in partial:
            logits = ablated.from_cut(anatomy, images, recording)
        else:
            logits = ablated.full_pass(anatomy, images)
        paired.add(column, logits.float().cpu())


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
    the last image's; images must be in random order.

    Source: Morcos et al. (2018), On the importance of single directions for generalization,
    sec. 2 (zero and mean of channels); Li and Janson (2024), Optimal ablation for
    interpretability, sec. 2 (a comparison of replacements).
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
        total = in_float64(activations).sum(0)
        groups = parts[index].groups.to(total.device)
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
