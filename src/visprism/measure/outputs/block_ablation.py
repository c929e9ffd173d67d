"""Ablation: accuracy and NLL of a trained model without one of its parts.

Source: Park and Kim (2022), How do vision transformers work?, fig. 10 and app. D.4 (there a
lesion study); Veit et al. (2016), Residual networks behave like ensembles of relatively shallow
networks, sec. 4.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from visprism.anatomy import (
    Ablation,
    Anatomy,
    Images,
    ReplacedPart,
    ablation_cuts,
    cache_cuts,
    can_start_at,
    first_images,
    forward,
    inner_blocks,
    pixels,
    replaced_ablation,
)
from visprism.core.errors import InputError
from visprism.core.processes import share
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.outputs.ablation_contrasts import summarize_by_kind
from visprism.measure.outputs.ablation_plan import (
    AblationSpec,
    Planned,
    joint_plan,
    plan_ablations,
)
from visprism.measure.outputs.replacements import replacements
from visprism.passes.batches import Batch, check_evaluation_mode, labeled, positioned
from visprism.passes.paired import Paired
from visprism.passes.predictions import Predictions
from visprism.results.ablation import Ablations, KindAblations
from visprism.results.per_image import PerImage

_TRIAL_IMAGES = 2  # images on which partial forward passes are compared with full ones


def ablation(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    parts: Sequence[str] = ("blocks", "convolutions"),
    replacement: str = "zero",
    num_channels: int = 4,
    roles: Mapping[str, Sequence[str]] | None = None,
    joint: Sequence[int] = (),
    draws: int = 10,
    run: Run = DEFAULT_RUN,
) -> tuple[Ablations, KindAblations, PerImage]:
    """Accuracy and NLL without each part of a model in turn; nothing is trained again.

    The accuracy drop is mean(correct) - mean(correct without the part) over the same images.

    Removing a whole block and removing one convolution inside it are two experiments, which are
    never ranked together: the rest of the block still depends on the convolution. Park and Kim
    remove whole attention and MLP blocks, and one 3x3 convolution of a ResNet block.

    Each batch runs through the full model once, and the tensors at its cuts are cached. An
    ablation then computes only what follows it: of n equal blocks n / 2 forward passes in all.
    Where a model does not return the same logits on a partial pass, full passes are run.
    Memory is that of a batch's tensors at all cuts.

    Args:
        anatomy: of the model, in evaluation mode.
        batches: each is (images, targets).
        parts: "blocks", each of which becomes the identity; "convolutions", of each
            convolutional block one spatial convolution that keeps the shape of its input;
            "heads", each head of each attention; "channels", some of each block; "tokens", the
            class tokens and the registers that leave each block.
        replacement: of what a part adds to its input (blocks and convolutions) or of its
            output: "zero"; "mean" over images and positions; "shuffle", that of the
            image before it in the batch. "mean" iterates over the batches twice.
        num_channels: channels of each block, drawn at random.
        roles: role of each token off the grid, by name of the block, for "tokens".
        joint: numbers of blocks to ablate together, drawn at random.
        draws: random sets of blocks for each number in `joint`.
        run: device, precision, seed of the draws, and progress.

    Returns:
        One row per ablation; means by kind with their differences; and the drop of each image.

    Source: Park and Kim (2022), app. D.4.
    """
    check_evaluation_mode(anatomy.model)
    run = run.on(anatomy.model)
    spec = AblationSpec(parts, replacement, num_channels, run.seed, roles or {})
    planned, reasons = plan_ablations(anatomy, spec)
    single = _replaced(anatomy, planned, batches, replacement, run)
    ablations = [*single, *joint_plan(single, joint, draws, run.seed)]
    if not ablations:
        because = f": {reasons[0]}" if reasons else ""
        raise InputError(
            f"{type(anatomy.model).__name__} must have a part that can be ablated ("
            f"{', '.join(parts)}), got none{because}"
        )
    paired, partial, provenance = ablated_outcomes(
        anatomy, batches, ablations, label="ablation", run=run
    )
    drops = paired.correct[:, :1] - paired.correct[:, 1:]
    kinds, per_image = summarize_by_kind(
        single, drops[:, : len(single)], paired.indices, provenance, replacement
    )
    kinds = replace(kinds, baseline_accuracy=paired.accuracy, classes=paired.classes)
    rows = _result(ablations, partial, paired, provenance)
    rows = replace(
        rows,
        not_ablated="; ".join(reasons),
        blocks=len(inner_blocks(anatomy)),
        replacement=replacement,
    )
    return rows, kinds, per_image


def ablated_outcomes(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    ablations: Sequence[Ablation],
    *,
    label: str,
    run: Run,
) -> tuple[Paired, set[int], Provenance]:
    """The outcomes of each image without and with each ablation.

    Returns:
        The outcomes, the cuts at which partial passes started, and the provenance.
    """
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
                    trial = first_images(images, _TRIAL_IMAGES)
                    partial = can_start_at(anatomy, trial, [a.cut for a in ablations])
                _add(paired, anatomy, ablations, partial, images, targets, start, tick)
    paired = paired.gathered()
    provenance = run.measured(images=paired.images, batch_size=largest, image_shape=shape)
    return paired, partial or set(), provenance


def _replaced(
    anatomy: Anatomy,
    planned: Sequence[Planned],
    batches: Iterable[Batch],
    replacement: str,
    run: Run,
) -> list[Ablation]:
    """The planned ablations, each with the replacement of its part."""
    parts = [item for item in planned if isinstance(item, ReplacedPart)]
    values = iter(replacements(anatomy, parts, batches, replacement=replacement, run=run))
    return [
        replaced_ablation(item, next(values)) if isinstance(item, ReplacedPart) else item
        for item in planned
    ]


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
        recording = cache_cuts(anatomy, images, ablation_cuts(from_cut))
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


def _result(
    ablations: Sequence[Ablation],
    partial: set[int],
    paired: Paired,
    provenance: Provenance,
) -> Ablations:
    several = np.array([a.ablated == "several" for a in ablations])
    first = [a.blocks[0] for a in ablations]
    low, high = paired.drop_intervals()
    columns = paired.columns()
    columns.pop("drop_error")
    return Ablations(
        block=np.array(["+".join(b.name for b in a.blocks) for a in ablations]),
        kind=np.where(several, "several", np.array([b.kind for b in first])),
        stage=np.array([b.stage for b in first]),
        depth=np.where(several, np.nan, np.array([b.depth for b in first])),
        subsampling=np.array([b.subsampling for b in first]),
        ablated=np.array([a.ablated for a in ablations]),
        num_blocks=np.array([len(a.blocks) for a in ablations]),
        **columns,
        drop_low=low,
        drop_high=high,
        partial=np.array([a.cut in partial for a in ablations]),
        baseline_accuracy=paired.accuracy,
        baseline_nll=paired.nll,
        classes=paired.classes,
        provenance=provenance,
    )
