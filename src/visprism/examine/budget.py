"""Budgets: what needs labels, as much of it as there is time for."""

from collections.abc import Callable
from functools import partial

from visprism.core.errors import InputError
from visprism.examine.densities import density_within
from visprism.examine.efforts import trial_within
from visprism.examine.grids import landscape_within
from visprism.examine.hessians import Bending, hessian_of
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials
from visprism.examine.outputs import Evaluation, Found, metrics_of
from visprism.examine.trials import shape_bias_of
from visprism.results.base import Result

# Parts of the minutes of an inquiry; of analyses that are not asked for, the others get theirs.
SHARES = {
    "hessian": 0.2,
    "density": 0.1,
    "landscape": 0.2,
    "robustness": 0.2,
    "lesion": 0.1,
    "noise": 0.1,
    "attack": 0.1,
}


def labelled_or_note(materials: Materials, inquiry: Inquiry, *, progress: Progress) -> Found:
    """What needs labels, each in its share of the minutes of the inquiry.

    Metrics of the predictions and the shape bias take one pass and no share. What cannot be
    had is a note, as nothing else of an examination needs it: where the images have no labels,
    or other classes than the model, or where there is too little time for one of them.
    """
    seconds = seconds_each(inquiry)
    notes: list[str] = []
    makers: dict[str, Callable[[], Found]] = {
        "uncertainty": partial(
            metrics_of,
            materials,
            inquiry,
            Evaluation(),
            partial(progress, label=f"{materials.model.label}, predictions"),
        ),
        "hessian": lambda: (
            hessian_of(
                materials,
                inquiry,
                # Weight decay would shift every eigenvalue by itself.
                Bending(weight_decay=0.0, minutes=seconds["hessian"] / 60),
                progress=progress,
            ),
            (),
        ),
        "density": lambda: (
            (density_within(materials, inquiry, seconds["density"], progress=progress),),
            (),
        ),
        "landscape": lambda: (
            (
                landscape_within(
                    materials,
                    inquiry,
                    seconds["landscape"],
                    progress=partial(progress, label=f"{materials.model.label}, landscape"),
                ),
            ),
            (),
        ),
    } | {
        name: partial(trial_within, name, materials, inquiry, seconds[name], progress)
        for name in ("robustness", "lesion", "noise", "attack")
        if name in seconds
    }
    asked = [name for name in makers if name in inquiry.analyses]
    asked = [name for name in asked if name == "uncertainty" or name in seconds]
    try:
        if asked:
            materials.check_classes()
    except InputError as error:
        notes.append(f"Without {', '.join(asked)}: {error}.")
        asked = []
    if "shape-bias" in inquiry.analyses and materials.image_set.textures is not None:
        makers["shape-bias"] = partial(shape_bias_of, materials, inquiry, progress)
        asked.append("shape-bias")
    found: list[Result] = []
    for name in asked:
        try:
            results, reasons = makers[name]()
        except InputError as error:
            notes.append(f"Without {name}: {error}.")
        else:
            found += results
            notes += reasons
    return tuple(found), tuple(notes)


def seconds_each(inquiry: Inquiry) -> dict[str, float]:
    """How long each analysis may take that has a share; none in no time.

    Example:
        >>> inquiry = Inquiry("shapes", analyses=("fourier", "lesion", "noise"), minutes=1.0)
        >>> seconds_each(inquiry)
        {'lesion': 30.0, 'noise': 30.0}
    """
    shares = {name: part for name, part in SHARES.items() if name in inquiry.analyses}
    if inquiry.minutes <= 0:
        return {}
    return {name: 60 * inquiry.minutes * s / sum(shares.values()) for name, s in shares.items()}
