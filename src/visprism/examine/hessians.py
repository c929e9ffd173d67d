"""Hessians as a part of an examination: of which objectives, phases and mini-batches."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path

from torch import nn

from visprism.anatomy import costs
from visprism.core.errors import InputError
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials
from visprism.measure.loss import Objective, sharpness
from visprism.measure.loss.curvature import (
    hessian_curves,
    hessian_spectrum,
    hessian_tally,
    joined,
    product_cost,
    spectral_density,
    top_eigenvalues,
    trace,
)
from visprism.models.checkpoints import load_checkpoint
from visprism.report import Examination
from visprism.results.base import Result

_PRODUCTS = 20  # that five eigenvalues take, as a rule
_LONG = 60  # seconds: what is over before is not announced


@dataclass(frozen=True)
class Bending:
    """Which second derivatives are looked at."""

    k: int = 5  # eigenvalues of each mini-batch, or of all the data
    weight_decay: float = 0.05  # of the objective with L2; 0: none
    parameters: str = "all"  # as `Objective` takes them
    augment: bool = False  # on augmented images too
    phases: tuple[Path, ...] = ()  # checkpoints; none: the model as it is
    minutes: float | None = None  # for the mini-batches of a model; None: all of them
    runs: int = 2  # of the density
    steps: int = 40


def hessians_of(
    materials: Sequence[Materials], inquiry: Inquiry, bending: Bending, *, progress: Progress
) -> list[Examination]:
    """The Hessian spectrum of mini-batches of each model, as an examination.

    Raises:
        InputError: as `hessian_spectrum`, and if a checkpoint does not fit, or images have no
            labels, or other classes than the model.
    """
    return [
        _examination(each, bending, hessian_of(each, inquiry, bending, progress=progress))
        for each in materials
    ]


def densities_of(
    materials: Sequence[Materials], inquiry: Inquiry, bending: Bending, *, progress: Progress
) -> list[Examination]:
    """Density, trace and foremost eigenvalues over all images, as an examination.

    Raises:
        InputError: as `hessians_of`.
    """
    return [
        _examination(each, bending, _density_of(each, inquiry, bending, progress=progress))
        for each in materials
    ]


def hessian_of(
    materials: Materials,
    inquiry: Inquiry,
    bending: Bending,
    *,
    progress: Progress,
) -> tuple[Result, ...]:
    """The spectrum of one model's mini-batches, its tally and its curves.

    Args:
        materials: the model and its images.
        inquiry: how.
        bending: of what.
        progress: shows how far it is.

    Raises:
        InputError: as `hessians_of`.
    """
    materials.check_classes()
    data: dict[str, Iterable] = {"": materials.batches(inquiry.batch_size)}
    if bending.augment:
        data = {"clean": data[""], "augmented": materials.augmented(inquiry)}
    label = f"{materials.model.label}, mini-batches"
    label += _expected(materials, inquiry, bending) if bending.minutes is None else ""
    seconds = bending.minutes and 60 * bending.minutes / max(1, len(bending.phases))
    found = joined(
        hessian_spectrum(
            model,
            data,
            k=bending.k,
            weight_decay=bending.weight_decay,
            parameters=bending.parameters,
            phase=phase,
            seed=inquiry.seed,
            seconds=seconds,
            compute=inquiry.compute,
            progress=partial(progress, label=f"{label}, {phase}" if phase else label),
            provenance=materials.provenance(inquiry),
        )
        for phase, model in _phases(materials, bending)
    )
    return found, hessian_tally(found, seed=inquiry.seed), hessian_curves(found)


def _expected(materials: Materials, inquiry: Inquiry, bending: Bending) -> str:
    """What the mini-batches of one phase and one sort of images will take, in words."""
    model, batches = materials.anatomy.model, materials.batches(inquiry.batch_size)
    one = Objective(model, [batches[0]], parameters=bending.parameters, compute=inquiry.compute)
    seconds = product_cost(one).seconds(_PRODUCTS) * len(batches)
    return f" (about {ceil(seconds / 60)} min)" if seconds > _LONG else ""


def _density_of(
    materials: Materials, inquiry: Inquiry, bending: Bending, *, progress: Progress
) -> tuple[Result, ...]:
    materials.check_classes()
    objective = Objective(
        materials.anatomy.model,
        list(materials.batches(inquiry.batch_size)),
        weight_decay=bending.weight_decay,
        parameters=bending.parameters,
        compute=inquiry.compute,
    )
    measures = {
        "foremost eigenvalues": partial(top_eigenvalues, k=bending.k),
        "density": partial(spectral_density, runs=bending.runs, steps=bending.steps),
        "trace": trace,
        "sharpness": lambda objective, seed, provenance: sharpness(  # noqa: ARG005
            objective, provenance=provenance
        ),
    }
    about = {"seed": inquiry.seed, "provenance": materials.provenance(inquiry)}
    label = materials.model.label
    return tuple(
        next(iter(progress(_once(measure, objective, about), f"{label}, {name}")))
        for name, measure in measures.items()
    )


def _once(measure, objective: Objective, about: dict) -> Iterator[Result]:  # noqa: ANN001
    yield measure(objective, **about)


def _phases(materials: Materials, bending: Bending) -> Iterator[tuple[str, nn.Module]]:
    """The model as it is, or with the weights of each checkpoint, which gives the name."""
    if not bending.phases:
        yield "", materials.anatomy.model
    for name, path in zip(_names(bending.phases), bending.phases, strict=True):
        model = deepcopy(materials.anatomy.model)
        load_checkpoint(model, path)
        yield name, model


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of files without their endings, with folders where they would be the same.

    Raises:
        InputError: if a file is named twice.
    """
    if len(set(paths)) < len(paths):
        raise InputError("a checkpoint is named twice; each phase needs a file of its own")
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    return [str(path.with_suffix("")) for path in paths]


def _examination(
    materials: Materials, bending: Bending, results: tuple[Result, ...]
) -> Examination:
    label = materials.model.label
    if bending.phases:  # whose weights take the place of the model's own
        label = label.removesuffix(" (random weights)")
    facts = replace(costs(materials.anatomy), provenance=results[0].provenance)
    return Examination(label, facts, results)
