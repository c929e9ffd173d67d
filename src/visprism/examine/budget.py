"""Budgets: what needs labels, as much of it as there is time for."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from visprism.data.image_set import balanced
from visprism.errors import InputError
from visprism.examine.hessians import Bending, hessian_of
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.landscapes import Survey, batches_of, planes_of
from visprism.examine.materials import Materials
from visprism.examine.outputs import Evaluation, metrics_of
from visprism.measure.landscape import Landscape, landscape, random_planes
from visprism.result import Result

GRIDS = (21, 15, 11, 9)  # points a side, from fine to coarse
_FEW, _MANY = 128, 1000  # images: a grid is made coarser before there are fewer, and at most
_HESSIAN = 0.5  # share of the time
_TRIED = 32  # images to take the time of


def labelled_or_note(
    materials: Materials, inquiry: Inquiry, *, progress: Progress
) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """What needs labels: metrics of predictions, and the Hessian and the landscape.

    The last two take the minutes of the inquiry; in no time there is neither. Where the images
    have no labels, or other classes than the model, that is a note: nothing else of an
    examination needs them.
    """
    seconds = 60 * inquiry.minutes
    label = f"{materials.model.label}, landscape"
    notes: list[str] = []

    def metrics() -> tuple[Result, ...]:
        shown = partial(progress, label=f"{materials.model.label}, predictions")
        found, reasons = metrics_of(materials, inquiry, Evaluation(), shown)
        notes.extend(reasons)
        return found

    makers: dict[str, Callable[[], tuple[Result, ...]]] = {
        "uncertainty": metrics,
        "hessian": lambda: hessian_of(
            materials,
            inquiry,
            # Weight decay would shift every eigenvalue by itself.
            Bending(weight_decay=0.0, minutes=_HESSIAN * inquiry.minutes),
            progress=progress,
        ),
        "landscape": lambda: (
            landscape_within(
                materials,
                inquiry,
                (1 - _HESSIAN) * seconds,
                progress=partial(progress, label=label),
            ),
        ),
    }
    asked = [name for name in makers if name in inquiry.analyses]
    if seconds <= 0:
        asked = [name for name in asked if name == "uncertainty"]
    found: list[Result] = []
    left = list(asked)
    try:
        if asked:
            materials.check_classes()
        while left:
            found += makers[left[0]]()
            left.pop(0)
    except InputError as error:
        notes.append(f"Without {', '.join(left)}: {error}.")
    return tuple(found), tuple(notes)


def landscape_within(
    materials: Materials,
    inquiry: Inquiry,
    seconds: float,
    *,
    survey: Survey | None = None,
    progress: Callable[[Iterable], Iterable] | None = None,
) -> Landscape:
    """The landscape of one model, as fine as it can be had within some seconds.

    One line is measured on few images to see how long an image takes. Then comes the finest of
    the grids of 21, 15, 11 or 9 points a side for which there is time for 128 images, on as
    many images as there is time for, 1,000 at most and 16 at least; so it may take longer on a
    slow machine. The grid and the number of images stand in the result.

    Raises:
        InputError: as `landscape`.
    """
    survey = survey or Survey()
    rate = _images_per_second(materials, inquiry, survey)
    points, images = grid_within(seconds * rate, len(materials.image_set))
    chosen = replace(survey, points=points)
    some = _some(materials, images, inquiry.seed)
    return landscape(
        some.anatomy.model,
        batches_of(some, inquiry, chosen),
        planes_of(some, inquiry, chosen, []),
        weight_decay=chosen.weight_decay,
        batch_norm=chosen.batch_norm,
        compute=inquiry.compute,
        progress=progress,
        provenance=some.provenance(inquiry),
    )


def grid_within(passes: float, images: int) -> tuple[int, int]:
    """Points a side, and number of images, for so many images passed through the model.

    Example:
        >>> grid_within(441e3, images=10_000), grid_within(3e4, images=10_000)
        ((21, 1000), (15, 133))
    """
    for points in GRIDS:
        affordable = int(passes / points**2)
        if affordable >= min(_FEW, images):
            return points, min(affordable, _MANY, images)
    return GRIDS[-1], min(images, max(16, int(passes / GRIDS[-1] ** 2)))


def _images_per_second(materials: Materials, inquiry: Inquiry, survey: Survey) -> float:
    """How many images pass through the model in a second, by trying."""
    some = _some(materials, _TRIED, inquiry.seed)
    (line,) = random_planes(some.anatomy.model, points=3, lines=True)
    batches = list(batches_of(some, inquiry, survey))
    begun = time.perf_counter()
    landscape(some.anatomy.model, batches, [line], compute=inquiry.compute)
    return 4 * len(some.image_set) / (time.perf_counter() - begun)  # 3 points, and the middle


def _some(materials: Materials, limit: int, seed: int) -> Materials:
    if limit >= len(materials.image_set):
        return materials
    chosen = balanced(materials.image_set.targets, limit, seed=seed)
    return replace(materials, image_set=materials.image_set.subset(chosen))
