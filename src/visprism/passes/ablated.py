"""The same images with and without each ablation of a model, and what replaces its parts.

Each batch runs through the full model once, and the tensors at its cuts are kept. An ablation
then computes only what follows it: of n equal blocks n / 2 forward passes in all. Memory
holds the tensors of one batch at all cuts.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.run.ablations import Ablation
from visprism.anatomy.run.cached_forward import cache_cuts, can_start_at
from visprism.anatomy.run.replaced_parts import ReplacedPart, Replacement
from visprism.anatomy.trace.forward import Images, forward, part_of
from visprism.core.devices import in_float64
from visprism.core.errors import InputError
from visprism.core.processes import gather, share
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.passes.batches import Batch, check_evaluation_mode, labeled
from visprism.passes.perturbed import Paired, paired_outcomes

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
    partial: set[int] | None = None  # cuts at which a forward pass can start

    def passes(
        images: Images, _targets: Int64[Tensor, " b"], _indices: range
    ) -> Iterator[Float[Tensor, "b k"]]:
        nonlocal partial
        if partial is None:
            partial = partial_cuts(anatomy, images, ablations, run)
        yield from ablated_logits(anatomy, images, ablations, partial, run)

    with torch.no_grad(), run.compute.borrow(anatomy.model):
        paired, origin = paired_outcomes(batches, passes, len(ablations), label=label, run=run)
    return paired, partial or set(), origin


def partial_cuts(
    anatomy: Anatomy, images: Images, ablations: Sequence[Ablation], run: Run
) -> set[int]:
    """The cuts of ablations at which a forward pass can start, tried on the first images."""
    with run.compute.autocast():
        trial = part_of(images, 0, _TRIAL_IMAGES)
        return can_start_at(anatomy, trial, [a.cut for a in ablations])


def ablated_logits(
    anatomy: Anatomy,
    images: Images,
    ablations: Sequence[Ablation],
    partial: Collection[int],
    run: Run,
) -> Iterator[Float[Tensor, "b k"]]:
    """The logits of the model, and then with each ablation, each computed when asked for.

    Passes start at the cuts in `partial`; see `partial_cuts`.
    """
    cuts = {a.cut for a in ablations if a.cut in partial}
    with run.compute.autocast():
        recording = cache_cuts(anatomy, images, cuts) if cuts else None
        logits = forward(anatomy.model, images) if recording is None else recording.logits
    yield logits.float()
    for ablated in ablations:
        with run.compute.autocast():
            if recording is not None and ablated.cut in cuts:
                logits = ablated.from_cut(anatomy, images, recording)
            else:
                logits = ablated.full_pass(anatomy, images)
        yield logits


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
    means = []
    for index, part in enumerate(parts):
        total = sum(process[index] for _, process in gathered)
        positions = torch.bincount(part.groups)[:, None]
        means.append((total / (positions * total_images))[part.groups])
    return means
