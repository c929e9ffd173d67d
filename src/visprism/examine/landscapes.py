"""Landscapes as a part of an examination: over which planes, on how many images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from visprism.anatomy import costs
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials
from visprism.figures import panel, save_figure
from visprism.measure.loss import Objective
from visprism.measure.loss.curvature import top_eigenpairs
from visprism.measure.loss.landscape import (
    Landscape,
    Plane,
    Projection,
    landscape,
    plane_along,
    plane_through,
    principal_plane,
    project,
    random_planes,
)
from visprism.models.state_dicts import read_state_dict
from visprism.report import Examination
from visprism.report.examination import slug

_THROUGH = 2  # checkpoints that a plane can go through, beside the model
_SHARPEST = 128  # images whose Hessian's eigenvectors make a plane


@dataclass(frozen=True)
class Survey:
    """Where a landscape is looked at, and on what."""

    points: int = 21
    reach: float = 1.0
    pairs: int = 1
    lines: bool = False
    normalization: str = "filter"
    tables: bool = False
    weight_decay: float = 0.05
    batch_norm: Literal["frozen", "reestimated"] = "frozen"
    augment: bool = False
    # 1 or 2 that the plane goes through, or more that are a path; none: random directions
    checkpoints: tuple[Path, ...] = ()
    eigenvectors: bool = False  # of the two largest Hessian eigenvalues, in their place


def landscapes_of(
    materials: Sequence[Materials],
    inquiry: Inquiry,
    survey: Survey,
    *,
    parts: Callable[[str], Path] | None,
    progress: Progress,
) -> list[Examination]:
    """The landscape of each model, as an examination.

    Args:
        materials: models taken apart, and their images.
        inquiry: on which images, and how.
        survey: over which planes.
        parts: the file, by a model's label, that keeps measured points; see `landscape`.
        progress: shows how far it is.

    Raises:
        InputError: as `landscape`, and if a checkpoint does not fit.
    """
    states = [read_state_dict(path) for path in survey.checkpoints]
    found = []
    for each in materials:
        each.check_classes()
        result = landscape(
            each.anatomy.model,
            batches_of(each, inquiry, survey),
            planes_of(each, inquiry, survey, states),
            weight_decay=survey.weight_decay,
            batch_norm=survey.batch_norm,
            resume=parts(each.model.label) if parts else None,
            compute=inquiry.compute,
            progress=partial(progress, label=f"{each.model.label}, points"),
            provenance=each.provenance(inquiry),
        )
        facts = replace(costs(each.anatomy), provenance=result.provenance)
        found.append(Examination(each.model.label, facts, (result,), _notes(each, survey)))
    return found


def write_paths(
    examinations: Sequence[Examination],
    materials: Sequence[Materials],
    survey: Survey,
    folder: Path,
) -> None:
    """Landscapes with the checkpoints of their plane, as ``figures/<model>-checkpoints``."""
    for each, source in zip(examinations, materials, strict=True):
        result = next(r for r in each.results if isinstance(r, Landscape))
        path = _path(source, survey)
        figure = panel([result], names=[each.name], path=path)
        save_figure(figure, folder / "figures" / f"{slug(each.name)}-checkpoints")
        path.save(folder / "results" / f"{slug(each.name)}-checkpoints.npz")


def _path(materials: Materials, survey: Survey) -> Projection:
    model = materials.anatomy.model
    states = [read_state_dict(path) for path in survey.checkpoints]
    plane = _plane_of(model, states, points=3)
    if len(states) > _THROUGH:
        return project(model, plane, [*states, model.state_dict()])
    return project(model, plane, [*states[:1], model.state_dict(), *states[1:]])


def planes_of(
    materials: Materials,
    inquiry: Inquiry,
    survey: Survey,
    states: Sequence[dict[str, Tensor]],
) -> list[Plane]:
    """The planes of a survey through a model's weights."""
    model = materials.anatomy.model
    if states:
        return [_plane_of(model, states, points=survey.points)]
    if survey.eigenvectors:
        number = -(-_SHARPEST // inquiry.batch_size)
        some = list(islice(batches_of(materials, inquiry, survey), number))
        objective = Objective(model, some, compute=inquiry.compute)
        _, vectors = top_eigenpairs(objective, k=2, which="LA", tol=1e-2, seed=inquiry.seed)
        along = (objective.unflatten(v.cpu()) for v in vectors)
        return [plane_along(model, *along, points=survey.points, reach=survey.reach)]
    return random_planes(
        model,
        pairs=survey.pairs,
        points=survey.points,
        reach=survey.reach,
        lines=survey.lines,
        normalization=survey.normalization,
        tables=survey.tables,
        seed=inquiry.seed,
    )


def _plane_of(model: nn.Module, states: Sequence[dict[str, Tensor]], *, points: int) -> Plane:
    """Through one or two checkpoints, or along the main directions of a longer path."""
    if len(states) > _THROUGH:
        return principal_plane(model, states, points=points)
    return plane_through(model, states, points=points)


def batches_of(materials: Materials, inquiry: Inquiry, survey: Survey) -> Iterable:
    """The images as the survey wants them; mixed ones with as many classes as the model has."""
    if not survey.augment:
        return materials.batches(inquiry.batch_size)
    return materials.augmented(inquiry)


def _notes(materials: Materials, survey: Survey) -> tuple[str, ...]:
    """What a reader must know."""
    notes = []
    if survey.eigenvectors:
        notes.append(
            "Directions are the eigenvectors of the two largest Hessian eigenvalues on "
            f"{_SHARPEST} of the images at most, of length 1."
        )
    if len(survey.checkpoints) > _THROUGH:
        notes.append(
            f"Directions are the two main ones of the path of {len(survey.checkpoints)} "
            "checkpoints, in the order in which they were named, that ends in the model's "
            "weights."
        )
    if survey.checkpoints and survey.batch_norm == "frozen":
        names = [type(m).__name__ for m in materials.anatomy.model.modules()]
        if any("BatchNorm" in name for name in names):
            notes.append(
                "CumulativeSums statistics are those of the model everywhere, also at the checkpoints;"
                " --batch-norm reestimated gives each point its own."
            )
    if survey.augment:
        notes.append("Images are augmented and mixed, the same at every point.")
    return tuple(notes)
