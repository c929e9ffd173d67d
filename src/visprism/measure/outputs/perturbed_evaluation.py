"""Conditions: a model on the same images as they are, and changed in several ways."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from visprism.anatomy import forward
from visprism.core.devices import CPU, Compute
from visprism.core.processes import rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.measure.batches import (
    Batch,
    check_evaluation_mode,
    labeled,
    positioned,
)
from visprism.measure.outputs.paired import Paired
from visprism.measure.outputs.pixel_space import PixelSpace
from visprism.measure.outputs.predictions import Predictions

Progress = Callable[[Iterable], Iterable]
Pixels = Float[Tensor, "b c h w"]
# Gives changed pixels, not clipped; is told the condition, the targets, and which images of the
# data these are.
Perturbation = Callable[[int, Pixels, Int64[Tensor, " b"], range], Pixels]


def evaluate_perturbed(
    model: nn.Module,
    batches: Iterable[Batch],
    space: PixelSpace,
    conditions: int,
    changed: Perturbation,
    *,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> tuple[Paired, Provenance]:
    """Accuracy and NLL with and without each change, on the same images.

    Raises:
        InputError: if the model is in training mode, images have no labels or are not in
            0 ... 1 once the standardisation is undone, or there are none.
    """
    check_evaluation_mode(model)
    sums = Paired(conditions)
    shape, largest = (), 0
    with ExitStack() as borrowed:
        borrowed.enter_context(compute.borrow(model))
        shown = progress if progress and rank() == 0 else iter
        for start, batch in positioned(shown(share(batches))):
            images, targets = labeled(batch, compute)
            pixels = space.pixels(images)
            shape, largest = tuple(pixels.shape[1:]), max(largest, len(targets))
            numbers = range(start, start + len(targets))
            logits = _logits(model, space.standardised(pixels), compute)
            sums.reference(Predictions(logits, targets).logits, targets)
            for which in range(conditions):
                new = changed(which, pixels, targets.to(pixels.device), numbers)
                sums.add(which, _logits(model, space.standardised(new), compute))
    sums = sums.gathered()
    facts = replace(
        provenance or Provenance(),
        images=sums.images,
        image_shape=shape,
        batch_size=largest,
        precision=compute.precision,
        device=compute.device,
        processes=world_size(),
    )
    return sums, facts


def _logits(model: nn.Module, images: Pixels, compute: Compute) -> Float[Tensor, "b k"]:
    with torch.no_grad(), compute.autocast():
        return forward(model, images).float().cpu()
