"""Error consistency: whether two models err on the same images, and their pictures."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
from jaxtyping import Int, Int64, UInt8
from matplotlib.axes import Axes
from torch import Tensor

from visprism.analyses.pictures import ImagePictures, picture_columns
from visprism.analyses.predictions.confusions import class_texts
from visprism.core.errors import InputError
from visprism.core.kappa import kappa_interval
from visprism.core.statistics import FEWEST_DIFFERENT
from visprism.drawing.color_bars import caption, picture
from visprism.drawing.registry import figure
from visprism.drawing.style import INK
from visprism.estimates import questions
from visprism.estimates.estimated import Number, mean, proportion
from visprism.passes.outcomes import Outcomes
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

MOST_PICTURES = 24
_LONGEST = 48  # pixels of a side
_ACROSS = 8  # pictures of a row
_STEP, _CAPTION = 1.1, 0.6  # in sides of a picture


@result_type("error-consistency")
class ErrorConsistency(Result):
    """Whether two models err on the same images; one row per image on which they differ."""

    image: np.ndarray = column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    only_first: np.ndarray = column(
        "First only", "", "whether only the first model classifies the image correctly"
    )
    position: np.ndarray = column(
        "Position", "", "index of the image in the data; -1 where it is not known"
    )
    target: Texts = column("Target", "", "class of the image")
    first: Texts = column("First prediction", "", "class that the first model predicts")
    second: Texts = column("Second prediction", "", "class that the second model predicts")
    images: int = scalar("Images", "", "number of images", default=0)
    both_correct: int = scalar(
        "Both correct", "", "images that both classify correctly", default=0
    )
    both_wrong: int = scalar(
        "Both wrong", "", "images that neither classifies correctly", default=0
    )
    observed: float = scalar(
        "Observed agreement", "", "fraction of images both correct or both wrong", default=nan
    )
    expected: float = scalar(
        "Expected agreement", "", "of independent models with these accuracies", default=nan
    )
    only_one: Number = estimate(
        "fraction of images that only one model classifies correctly",
        "%",
        question=questions.DISAGREEMENT,
        comparison="none",
    )
    kappa: Number = estimate(
        "error consistency (Cohen's kappa)",
        "",
        "(observed - expected) / (1 - expected) agreement",
        question=questions.ERRORS,
        comparison="none",
    )
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """How many images only one of the models classifies correctly."""
        if name != "only_one":
            return {}
        first, second = self.first_model or "first model", self.second_model or "second model"
        only = int(self.only_first.sum())
        return {"reading": f"{only} by {first} only, {len(self) - only} by {second} only"}


def error_consistency(
    first: Outcomes,
    second: Outcomes,
    *,
    names: tuple[str, str] | None = None,
    class_names: Sequence[str] = (),
    positions: Int64[np.ndarray, " n"] | None = None,
) -> ErrorConsistency:
    """Agreement of two models in which images they classify correctly, beyond chance.

    With accuracies p and q, c_exp = p q + (1 - p)(1 - q) is the agreement of independent
    errors, c_obs the fraction of images both correct or both wrong, and
    kappa = (c_obs - c_exp) / (1 - c_exp). The interval is
    `visprism.core.kappa.kappa_interval`; there is none if one of the models has fewer
    than 5 correct or 5 wrong predictions. Kappa is NaN if 1 - c_exp is 0, and 0 in any case if
    only one model is correct, or wrong, on all images: c_obs is c_exp then.

    Source: Geirhos, Meding and Wichmann (2020), Beyond accuracy: quantifying trial-by-trial
    behaviour of CNNs and humans by measuring error consistency.
    """
    if not len(first) or not np.array_equal(first.target, second.target):
        raise InputError(
            "first and second must be outcomes of the same images in the same order, got "
            f"{len(first)} and {len(second)} images with different targets"
        )
    names = names or (first.provenance.model, second.provenance.model)
    a, b = first.correct.astype(bool), second.correct.astype(bool)
    n = len(a)
    # Rows: first model wrong, correct; columns: second model wrong, correct.
    counts = np.array([[(~a & ~b).sum(), (~a & b).sum()], [(a & ~b).sum(), (a & b).sum()]])
    table = counts / n
    observed = float(np.trace(table))
    expected = float(table.sum(1) @ table.sum(0))
    kappa = (observed - expected) / (1 - expected) if expected < 1 else nan
    low, high = kappa_interval(counts.astype(np.float64))
    missing = ""
    if np.isnan(kappa):
        missing = "both models are correct, or both are wrong, on all images"
    elif np.isnan(low):
        missing = f"a model is correct or wrong on fewer than {FEWEST_DIFFERENT} images"
    differ = np.flatnonzero(a != b)
    return ErrorConsistency(
        image=differ,
        only_first=a[differ],
        position=np.full(len(differ), -1) if positions is None else positions[differ],
        target=class_texts(first.target[differ], class_names),
        first=class_texts(first.predicted[differ], class_names),
        second=class_texts(second.predicted[differ], class_names),
        images=n,
        both_correct=int((a & b).sum()),
        both_wrong=int((~a & ~b).sum()),
        observed=observed,
        expected=expected,
        only_one=mean((a != b).astype(np.float64), proportion),
        kappa=Number(kappa, low, high, missing=missing),
        first_model=names[0],
        second_model=names[1],
        provenance=replace(first.provenance, model=" and ".join(filter(None, names))),
    )


@result_type("differing-pictures")
class DifferingPictures(ImagePictures):
    """Images that only one of two models classifies correctly; one row for each image."""

    target: Texts = column("Target", "", "class of the image")
    first: Texts = column("First prediction", "", "class that the first model predicts")
    second: Texts = column("Second prediction", "", "class that the second model predicts")
    images: int = scalar("Images", "", "number of images on which the models differ", default=0)
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")


def differing_pictures(
    differing: ErrorConsistency, pixels: Callable[[int], UInt8[Tensor, "c h w"]]
) -> DifferingPictures:
    """The first images that only one model classifies correctly, at most 24.

    Both models have as many of them as the other, as far as there are as many.
    """
    rows = _chosen(differing.only_first.astype(bool))
    return DifferingPictures(
        image=differing.image[rows],
        target=differing.target[rows],
        first=differing.first[rows],
        second=differing.second[rows],
        **picture_columns((pixels(int(i)) for i in differing.image[rows]), _LONGEST),
        images=len(differing),
        first_model=differing.first_model,
        second_model=differing.second_model,
        provenance=differing.provenance,
    )


def _chosen(only_first: np.ndarray) -> Int[np.ndarray, " n"]:
    """Rows of both kinds in turn until one kind has no more, at most 24, in order."""
    kinds = [np.flatnonzero(only_first), np.flatnonzero(~only_first)]
    ranks = [np.arange(len(kind)) for kind in kinds]
    in_turn = np.argsort(np.concatenate(ranks), kind="stable")
    return np.sort(np.concatenate(kinds)[in_turn[:MOST_PICTURES]])


@figure(width=6.6, height=4.2, across=1, share=False)
def _(result: DifferingPictures, ax: Axes) -> Axes:
    """Below each picture its class, then the predictions of the first and the second model."""
    rows = -(-max(len(result), 1) // _ACROSS)
    down = 1 + _CAPTION
    for i, pixels in enumerate(result.pictures()):
        left, top = (i % _ACROSS) * _STEP, (i // _ACROSS) * down
        words = (f"true: {result.target[i]}", f"1: {result.first[i]}", f"2: {result.second[i]}")
        about = f"image {result.image[i]} · {' · '.join(words)}"
        picture(ax, pixels, left, top, about=about, interpolation="none")
        caption(ax, "\n".join(words), (left + 0.5, top + 1))
    models = f"1: {result.first_model}   2: {result.second_model}"
    ax.text(0, -0.1, models, fontsize=7, color=INK, parse_math=False)
    ax.set(xlim=(0, _ACROSS * _STEP), ylim=(rows * down, -0.35), aspect="equal")
    ax.axis("off")
    return ax
