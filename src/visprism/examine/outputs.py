"""Outputs as a part of an examination: metrics on clean and on corrupted images."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from visprism.anatomy import costs
from visprism.core.errors import InputError
from visprism.data import Batches, batches, in_memory
from visprism.data.batches import standardised
from visprism.data.corruptions import CORRUPTIONS, corrupt, sequence, table_for
from visprism.data.corruptions.sequences import check_perturbation
from visprism.data.corruptions.severities import check_severity
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials, prepare
from visprism.examine.notes import left_out
from visprism.measure.outputs import (
    ALEXNET,
    CLEAN,
    corruption_errors,
    outcomes,
    predict,
    reliability,
    risk_coverage,
    robustness,
    stability,
    temperature,
    uncertainty,
)
from visprism.models import LoadedModel
from visprism.report import Examination
from visprism.results.base import Result

Found = tuple[tuple[Result, ...], tuple[str, ...]]  # results, and what a reader should know


@dataclass(frozen=True)
class Evaluation:
    """What to compute from the predictions."""

    cutoffs: tuple[float, ...] = (0.9,)
    bins: int = 10
    samples: int = 1  # stochastic passes
    resamples: int = 400  # of the bootstrap
    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    perturbations: tuple[str, ...] = ()


def evaluate(
    models: Sequence[LoadedModel],
    inquiry: Inquiry,
    evaluation: Evaluation,
    *,
    progress: Progress,
) -> list[Examination]:
    """Every metric of every model's predictions; on corrupted images too, where asked for.

    Raises:
        InputError: if the data cannot be read or has no labels or other classes, or there is no
            such corruption.
    """
    _check(evaluation)
    materials = prepare(models, inquiry, progress=progress)
    return [_evaluated(each, inquiry, evaluation, progress) for each in materials]


def _check(evaluation: Evaluation) -> None:
    """Whether all that is named is there, before a model is loaded."""
    for name in evaluation.corruptions:
        CORRUPTIONS[name]
    for severity in evaluation.severities:
        check_severity(severity)
    for name in evaluation.perturbations:
        check_perturbation(name)


def corrupted(
    materials: Materials, inquiry: Inquiry, corruption: str, severity: int
) -> Batches:
    """The images as the model wants them, but corrupted after they were cropped."""

    def change(crops: Tensor, numbers: Sequence[int]) -> Tensor:
        return corrupt(crops, corruption, severity, seed=inquiry.seed, numbers=numbers)

    return batches(
        materials.image_set, materials.preprocessing, inquiry.batch_size, change=change
    )


def perturbed(materials: Materials, inquiry: Inquiry, perturbation: str) -> Iterator[Tensor]:
    """Sequences of frames (images, frames, 3, H, W) as the model wants them.

    As many images at a time as make about a batch of frames.
    """
    step = max(1, inquiry.batch_size // 16)
    for start in range(0, len(materials.image_set), step):
        numbers = range(start, min(start + step, len(materials.image_set)))
        part = materials.image_set.subset(torch.tensor(numbers).numpy())
        crops, _ = in_memory(part, materials.preprocessing)
        frames = sequence(crops, perturbation, seed=inquiry.seed, numbers=numbers)
        shown = standardised(frames.flatten(0, 1), materials.preprocessing)
        yield shown.view_as(frames)


def _evaluated(
    materials: Materials, inquiry: Inquiry, evaluation: Evaluation, progress: Progress
) -> Examination:
    label = materials.model.label
    if evaluation.corruptions or evaluation.perturbations:
        found, notes = robustness_of(materials, inquiry, evaluation, progress)
    else:
        shown = partial(progress, label=f"{label}, batches")
        found, notes = metrics_of(materials, inquiry, evaluation, shown)
    facts = replace(costs(materials.anatomy), provenance=found[0].provenance)
    return Examination(label, facts, found, (*notes, *left_out(materials.image_set)))


def metrics_of(
    materials: Materials,
    inquiry: Inquiry,
    evaluation: Evaluation,
    shown: Callable[[Iterable], Iterable],
) -> Found:
    """Every metric of one model's predictions, and what to say of one that there cannot be."""
    predictions = predict(
        materials.model.model,
        materials.batches(inquiry.batch_size),
        samples=evaluation.samples,
        seed=inquiry.seed,
        compute=inquiry.compute,
        progress=shown,
        provenance=materials.provenance(inquiry),
    )
    seen = outcomes(predictions)
    found: list[Result] = [
        uncertainty(
            seen,
            cutoff=evaluation.cutoffs,
            bins=evaluation.bins,
            resamples=evaluation.resamples,
            seed=inquiry.seed,
        ),
        reliability(seen, bins=evaluation.bins),
        risk_coverage(seen),
    ]
    try:
        found.append(temperature(predictions, seed=inquiry.seed)[0])
    except InputError as error:  # other metrics are not lost for that
        return tuple(found), (f"Without a temperature: {error}.",)
    return tuple(found), ()


def robustness_of(
    materials: Materials, inquiry: Inquiry, evaluation: Evaluation, progress: Progress
) -> Found:
    """Every metric on corrupted images, and flip rates of perturbed ones."""
    model, label = materials.model.model, materials.model.label
    found: list[Result] = []
    notes: tuple[str, ...] = ()
    shared = {
        "resamples": evaluation.resamples,
        "seed": inquiry.seed,
        "compute": inquiry.compute,
        "provenance": materials.provenance(inquiry),
    }
    size = table_for(*materials.preprocessing.size)
    if evaluation.corruptions:
        data = {CLEAN: materials.batches(inquiry.batch_size)} | {
            (name, severity): corrupted(materials, inquiry, name, severity)
            for name in evaluation.corruptions
            for severity in evaluation.severities
        }
        measured = robustness(
            model,
            data,
            cutoff=evaluation.cutoffs,
            bins=evaluation.bins,
            samples=evaluation.samples,
            progress=partial(progress, label=f"{label}, corruptions"),
            **shared,
        )
        classes = materials.image_set.num_classes
        reference = ALEXNET if size == "ImageNet" and classes == 1000 else None
        found += [measured, corruption_errors(measured, reference=reference)]
        notes = (
            f"Corruptions are made here, with the severities of {size}-C; the images are not "
            "those of the stored set.",
        )
    if evaluation.perturbations:
        sequences = {p: perturbed(materials, inquiry, p) for p in evaluation.perturbations}
        shown = partial(progress, label=f"{label}, sequences")
        found.append(stability(model, sequences, progress=shown, **shared))
    return tuple(found), notes
