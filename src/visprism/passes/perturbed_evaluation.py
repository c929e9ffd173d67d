"""Evaluation of a model on the same images with and without several changes of the pixels."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.processes import add_up, share
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.inference import inference
from visprism.passes.batches import Batch, check_evaluation_mode, labeled, positioned
from visprism.passes.paired import Paired
from visprism.passes.pixel_space import PixelSpace
from visprism.passes.predictions import Predictions

Pixels = Float[Tensor, "b c h w"]
# Returns changed pixels, not clipped, from the number of the condition, the pixels, the targets
# and the indices of the images in the data.
Perturbation = Callable[[int, Pixels, Int64[Tensor, " b"], range], Pixels]


def evaluate_perturbed(
    model: nn.Module,
    batches: Iterable[Batch],
    space: PixelSpace,
    conditions: int,
    perturb: Perturbation,
    *,
    clean: Predictions | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[Paired, Provenance]:
    """Correctness and NLL of each image without and with each change of its pixels.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets).
        space: how pixels are normalized.
        conditions: number of changes.
        perturb: the change of each condition.
        clean: the model's predictions of the same images in the same order, which then are not
            computed.
        run: device, precision, inference settings and progress.
    """
    check_evaluation_mode(model)
    paired = Paired(conditions)
    shape, largest = (), 0
    power = torch.zeros(conditions, 2, dtype=torch.float64)  # sum of squares, and number
    with ExitStack() as stack:
        predict = stack.enter_context(inference(model, run.inference, run.compute))
        shared = share(batches)
        tick = stack.enter_context(run.ticks(shared, 1 + conditions, "perturbed images"))
        for start, batch in positioned(shared):
            tick()
            images, targets = labeled(batch, run.compute)
            pixels = space.pixels(images)
            shape, largest = tuple(pixels.shape[1:]), max(largest, len(targets))
            indices = range(start, start + len(targets))
            if clean is None:
                logits = predict(space.normalized(pixels)).float().cpu()
            else:
                logits = _rows(clean, targets, start)
            paired.reference(Predictions(logits, targets).logits, targets, start)
            for condition in range(conditions):
                tick()
                new = perturb(condition, pixels, targets.to(pixels.device), indices)
                change = (new - pixels).double()
                power[condition, 0] += change.square().sum().cpu()
                power[condition, 1] += change.numel()
                paired.add(condition, predict(space.normalized(new)).float().cpu())
    paired = paired.gathered()
    power = add_up(power)
    paired.rms = (power[:, 0] / power[:, 1]).sqrt().numpy()
    return paired, run.measured(images=paired.images, batch_size=largest, image_shape=shape)


def _rows(clean: Predictions, targets: Int64[Tensor, " b"], start: int) -> Float[Tensor, "b k"]:
    """The logits of a batch among those of all images."""
    rows = slice(start, start + len(targets))
    if clean.logits.ndim != 2 or not torch.equal(clean.targets[rows], targets):
        raise InputError(
            "clean must be predictions of one pass over the same images in the same order, got "
            f"{len(clean)} predictions whose targets differ from image {start} on"
        )
    return clean.logits[rows]
