"""Prediction: one pass of a model over labeled data."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy.trace.forward import Images, batch_size, pixels, without_replicas
from visprism.core.errors import InputError
from visprism.core.memory import reused_memory
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.tasks import Task
from visprism.passes.batches import Batch, check_evaluation_mode, in_order, labeled
from visprism.passes.forward_passes import Forward, inference
from visprism.passes.predictions import Predictions


def predict(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    device: str | None = None,
    run: Run = DEFAULT_RUN,
) -> Predictions:
    """The logits of a model for every image, in float32, with the targets.

    Several processes share the batches; the images stay in their order. Costs the forward
    passes and the memory of the logits.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets); images are a tensor (B, C, H, W) or a mapping.
        device: as torch names it; by default the run's, or where the model lies.
        run: device, precision and progress.
    """
    model = without_replicas(model)
    check_evaluation_mode(model)
    run = run.at(device).on(model)
    parts: list[tuple[Tensor, Tensor, torch.Size]] = []  # logits (b, k), targets, shape
    with reused_memory(), inference(model, run.compute) as forward:
        for batch in run.track_share(batches, "predictions"):
            images, targets = labeled(batch, run.compute)
            logits = _logits(model, forward, images, run.task)
            if run.task.dense:  # maps are not kept
                logits, targets = _outcomes(run.task, logits, targets), targets[:, 0, 0]
            parts.append((logits, targets, pixels(images).shape[1:]))
    logits, targets, (shape, *_) = zip(*in_order(parts), strict=True)
    provenance = run.measured(
        images=sum(map(len, targets)), batch_size=max(map(len, targets)), image_shape=shape
    )
    return Predictions(torch.cat(logits), torch.cat(targets), provenance, run.task)


def _outcomes(task: Task, outputs: Tensor, targets: Tensor) -> Float[Tensor, "b 2"]:
    parts = (f(outputs, targets).double() for f in (task.outcome, task.loss))
    return torch.stack(list(parts), dim=1)


def _logits(
    model: nn.Module, forward: Forward, images: Images, task: Task
) -> Float[Tensor, "b ..."]:
    logits = forward(images)
    if not task.single_class:
        return logits.float().cpu()
    if logits.ndim != 2 or len(logits) != batch_size(images):
        raise InputError(
            f"output of the model must be logits (images, classes), got {tuple(logits.shape)} "
            f"of {type(model).__name__} for {batch_size(images)} images. Use a classifier with "
            "its head."
        )
    return logits.float().cpu()
