"""The lesion study: what a trained model loses when one of its parts is taken out.

Source: Park and Kim (2022), How do vision transformers work?, fig. 10 and app. D.4; Veit et al.
(2016), Residual networks behave like ensembles of relatively shallow networks, sec. 4.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from visprism.anatomy import (
    Ablation,
    Anatomy,
    Images,
    ablation_cuts,
    cache_cuts,
    can_start_at,
    first_images,
    forward,
    pixels,
)
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.measure.batches import Batch, check_evaluation_mode, labeled
from visprism.measure.features.per_block import described
from visprism.measure.outputs.ablation_plan import joined, planned
from visprism.measure.outputs.ablation_result import Ablations
from visprism.measure.outputs.paired import Paired
from visprism.measure.outputs.predictions import Predictions

Progress = Callable[[Iterable], Iterable]
_TRIED = 2  # images, on which it is seen whether passes resume


def ablation(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    pieces: Sequence[str] = ("units",),
    together: Sequence[int] = (),
    draws: int = 10,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> Ablations:
    """Accuracy and NLL without each part of a model in turn.

    The drop is mean(right with the part) - mean(right without it), over the same images; its
    standard error is that of the mean of their differences. Nothing is trained again.

    Each batch runs through the whole model once, and the tensors at its cuts are kept. A lesion
    then runs only what follows it: of n equal blocks n / 2 passes in all instead of n. On the
    first images it is seen whether the model gives the same logits when it resumes so; where it
    does not, the whole model runs, and `resumed` says so. Memory is that of a batch's tensors
    at all cuts.

    Args:
        anatomy: of the model, in evaluation mode.
        batches: each is (images, targets).
        pieces: what to take out one by one. "units": of a block that is an attention, an MLP or
            a mixing of tokens all, so that it becomes the identity; of another one spatial
            convolution, or all where none keeps its shape. "blocks": each block as a whole.
            "heads": each head of each attention.
        together: numbers of blocks to take out at once, drawn at random.
        draws: how many times for each number.
        seed: of the draws.
        compute: device and precision.
        progress: wraps the batches to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if the model is in training mode, images have no labels, a piece is unknown,
            more blocks are to go than there are, or nothing can be lesioned.

    Source: Park and Kim (2022), app. D.4.
    """
    check_evaluation_mode(anatomy.model)
    removals, reasons = planned(anatomy, pieces)
    single = [r for r in removals if "head" not in r.removed]
    removals += joined(single, together, draws, seed)
    if not removals:
        raise InputError(
            f"nothing of {type(anatomy.model).__name__} can be lesioned"
            + (
                f": {reasons[0]}"
                if reasons
                else "; no block keeps the shape of its feature map"
            )
        )
    sums = Paired(len(removals))
    resumes: set[int] | None = None
    shape, largest = (), 0
    with torch.no_grad(), ExitStack() as borrowed:
        borrowed.enter_context(compute.borrow(anatomy.model))
        for batch in (progress if progress and rank() == 0 else iter)(share(batches)):
            images, targets = labeled(batch, compute)
            shape, largest = tuple(pixels(images).shape[1:]), max(largest, len(targets))
            with compute.autocast():
                if resumes is None:
                    some = first_images(images, _TRIED)
                    resumes = can_start_at(anatomy, some, [r.cut for r in removals])
                _add(sums, anatomy, removals, resumes, images, targets)
    sums = sums.gathered()
    facts = replace(
        provenance or Provenance(),
        images=sums.images,
        image_shape=shape,
        batch_size=largest,
        precision=compute.precision,
        device=compute.device,
        processes=world_size(),
        seed=seed if together else (provenance or Provenance()).seed,
    )
    return _result(removals, resumes or set(), sums, reasons, facts)


def _add(
    sums: Paired,
    anatomy: Anatomy,
    removals: Sequence[Ablation],
    resumes: set[int],
    images: Images,
    targets: Int64[Tensor, " b"],
) -> None:
    """What a batch adds."""
    resuming = [r for r in removals if r.cut in resumes]
    if resuming:
        recording = cache_cuts(anatomy, images, ablation_cuts(resuming))
        logits = recording.logits
    else:
        recording, logits = None, forward(anatomy.model, images)
    # Whether these are logits and targets, which a lesion does not change.
    sums.reference(Predictions(logits.float().cpu(), targets).logits, targets)
    for row, removal in enumerate(removals):
        if recording is not None and removal.cut in resumes:
            without = removal.from_cut(anatomy, images, recording)
        else:
            without = removal.full_pass(anatomy, images)
        sums.add(row, without.float().cpu())


def _result(
    removals: Sequence[Ablation],
    resumes: set[int],
    sums: Paired,
    reasons: Sequence[str],
    facts: Provenance,
) -> Ablations:
    columns = described([r.blocks[0] for r in removals])
    several = np.array([r.removed == "several" for r in removals])
    names = ["+".join(b.name for b in r.blocks) for r in removals]
    return Ablations(
        **columns
        | {
            "block": np.array(names),
            "kind": np.where(several, "several", columns["kind"]),
            "depth": np.where(several, np.nan, columns["depth"]),
        },
        removed=np.array([r.removed for r in removals]),
        number=np.array([len(r.blocks) for r in removals]),
        **sums.columns(),
        resumed=np.array([r.cut in resumes for r in removals]),
        whole_accuracy=sums.accuracy,
        whole_nll=sums.nll,
        left_out="; ".join(reasons),
        provenance=facts,
    )
