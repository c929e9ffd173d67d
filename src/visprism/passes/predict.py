"""Prediction: one pass over labeled data, several with dropout, or several models."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Images, batch_size, pixels
from visprism.core.errors import InputError
from visprism.core.inference import Inference
from visprism.core.memory import reused_memory
from visprism.core.processes import gather, rank, world_size
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.inference import (
    Forward,
    grouped,
    inference,
    peek,
    regrouped,
    select_inference,
)
from visprism.passes.batches import Batch, check_evaluation_mode, labeled
from visprism.passes.dropout import dropout_modules, stochastic
from visprism.passes.predictions import Predictions

_BatchLogits = tuple[Tensor, Tensor]  # logits (s, b, k) and targets (b,)


def predict(
    model: nn.Module | Sequence[nn.Module],
    batches: Iterable[Batch],
    *,
    samples: int = 1,
    run: Run = DEFAULT_RUN,
) -> Predictions:
    """The logits of a model for every image, in float32, with the targets.

    With `samples` above 1 every batch passes through the model that many times with dropout
    active and nothing else in training mode (Monte Carlo dropout). Several models are an
    ensemble. Both give a stack of logits, whose probabilities the metrics average.

    Without `run.inference` each model runs as `select_inference` selects on the first batch: in
    batches of another size, channels-last and with folded BatchNorm where its logits stay what
    they are. Stochastic passes run as the model is written.

    Several processes share the batches; the images stay in their order. Costs the forward
    passes and the memory of the logits.

    Args:
        model: in evaluation mode; or several of them, with the same classes.
        batches: each is (images, targets); images are a tensor (B, C, H, W) or a mapping.
        samples: number of stochastic passes of each model.
        run: device, precision, progress, and the seed of dropout, which gives the same passes
            on any number of processes.

    Source: Gal and Ghahramani (2016), Dropout as a Bayesian approximation; Lakshminarayanan et
    al. (2017), Simple and scalable predictive uncertainty estimation using deep ensembles.
    """
    models = [model] if isinstance(model, nn.Module) else list(model)
    _check(models, samples)
    schedule, batches = _scheduled(models, batches, samples, run)
    parts: list[_BatchLogits] = []
    shape: tuple[int, ...] = ()
    largest = 0
    with reused_memory(), ExitStack() as stack:
        forwards = [
            stack.enter_context(inference(member, choice, run.compute))
            for member, choice in zip(models, schedule.choices, strict=True)
        ]
        for turn, group in enumerate(run.track_share(schedule.groups(batches), "predictions")):
            checked = (labeled(batch, run.compute) for batch in group)
            number = rank() + turn * world_size()
            of_group: list[_BatchLogits] = []
            for images, targets in regrouped(checked, schedule.size):
                shape, largest = tuple(pixels(images).shape[1:]), max(largest, len(targets))
                passes = _passes(models, forwards, images, samples, run, number)
                of_group.append((torch.stack(passes), targets))
            logits, targets = zip(*of_group, strict=True)
            parts.append((torch.cat(logits, dim=1), torch.cat(targets)))
            if samples > 1 and not turn:
                _check_stochastic(models, parts[0][0], samples)
    parts, shape, largest = _gathered(parts, shape, largest)
    targets = torch.cat([targets for _, targets in parts])
    logits = torch.cat([logits for logits, _ in parts], dim=1)
    provenance = run.measured(
        images=len(targets),
        batch_size=largest,
        image_shape=shape,
        inference="; ".join(dict.fromkeys(choice.sentence() for choice in schedule.choices)),
    )
    return Predictions(logits if len(logits) > 1 else logits[0], targets, provenance)


@dataclass(frozen=True)
class _Schedule:
    """How the passes of several models run on the same batches."""

    choices: Sequence[Inference]
    number: int = 1  # of given batches that are read together
    size: int | None = None  # images of a forward pass; None: batches as they are given

    def groups(self, batches: Iterable[Batch]) -> Iterable[Iterable[Batch]]:
        return grouped(batches, self.number)


def _scheduled(
    models: Sequence[nn.Module], batches: Iterable[Batch], samples: int, run: Run
) -> tuple[_Schedule, Iterable[Batch]]:
    """The settings given, or those selected on the first batch, and all batches.

    The first batch is read for the selection alone: corrupting it a second time may take
    longer than its forward pass.
    """
    if run.inference is not None or samples > 1:
        given = run.inference if samples == 1 else None
        return _Schedule([given or Inference()] * len(models)), batches
    first, number, batches = peek(batches)
    if first is None:
        return _Schedule([Inference()] * len(models)), batches
    images, targets = labeled(first, run.compute)
    total = None if number is None else number * len(targets)
    selected = [select_inference(m, images, run.compute, total=total) for m in models]
    choices = gather(selected)[0]  # the same in every process
    sizes = [choice.batch_size for choice in choices if choice.batch_size is not None]
    size = min(sizes) if len(sizes) == len(choices) else None
    number_together = 1 if size is None else max(1, size // len(targets))
    return _Schedule(choices, number_together, size), batches


def _check(models: Sequence[nn.Module], samples: int) -> None:
    if not models:
        raise InputError("model must be a module or a sequence of at least one, got none")
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")
    for model in models:
        check_evaluation_mode(model)
        if samples > 1 and not dropout_modules(model):
            raise InputError(
                f"samples must be 1 for {type(model).__name__}, which has no dropout with a "
                f"probability above 0, got {samples}"
            )


def _passes(
    models: Sequence[nn.Module],
    forwards: Sequence[Forward],
    images: Images,
    samples: int,
    run: Run,
    batch: int,
) -> list[Float[Tensor, "b k"]]:
    """Logits of each model and pass in turn."""
    passes = []
    for which, (model, forward) in enumerate(zip(models, forwards, strict=True)):
        if samples == 1:
            passes.append(_logits(model, forward, images))
            continue
        for sample in range(samples):
            with stochastic(model, run.compute, run.seed, batch, which, sample):
                passes.append(_logits(model, forward, images))
    return passes


def _check_stochastic(
    models: Sequence[nn.Module], logits: Float[Tensor, "s b k"], samples: int
) -> None:
    """Refuse models that have dropout but do not apply it in any pass."""
    for model, passes in zip(models, logits.split(samples), strict=True):
        if torch.equal(passes, passes[:1].expand_as(passes)):
            raise InputError(
                f"samples must be 1 for {type(model).__name__}, all {samples} passes of which "
                "are equal: its dropout is not active when its modules are in training mode"
            )


def _logits(model: nn.Module, forward: Forward, images: Images) -> Float[Tensor, "b k"]:
    logits = forward(images)
    if logits.ndim != 2 or len(logits) != batch_size(images):
        raise InputError(
            f"output of the model must be logits (images, classes), got {tuple(logits.shape)} "
            f"of {type(model).__name__} for {batch_size(images)} images. Use a classifier with "
            "its head."
        )
    if logits.is_complex():
        kind = str(logits.dtype).removeprefix("torch.")
        raise InputError(
            f"output of the model must be real logits, got {kind} of {type(model).__name__}. "
            "Return their magnitude or real part."
        )
    return logits.float().cpu()


def _gathered(
    parts: list[_BatchLogits], shape: tuple[int, ...], largest: int
) -> tuple[list[_BatchLogits], tuple[int, ...], int]:
    """The logits of all processes, in the order of the batches, and the largest batch."""
    ranks = gather((parts, shape, largest))
    longest = max(len(batches) for batches, *_ in ranks)
    if not longest:
        raise InputError("data must hold at least one image, got none")
    united = [
        batches[turn] for turn in range(longest) for batches, *_ in ranks if turn < len(batches)
    ]
    shape = next(shape for batches, shape, _ in ranks if batches)
    return united, shape, max(largest for *_, largest in ranks)
