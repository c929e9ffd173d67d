"""Error consistency: whether two models err on the same images, and their pictures."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Int64, UInt8
from matplotlib.axes import Axes
from torch import Tensor

from visprism import kit
from visprism.analyses.pictures import ImagePictures, picture_columns
from visprism.analyses.predictions.confusions import class_texts
from visprism.core.statistics import FEWEST_DIFFERENT, NORMAL_95
from visprism.drawing import style
from visprism.drawing.color_bars import caption, picture
from visprism.estimates.estimated import mean, proportion
from visprism.passes.outcomes import Outcomes

MOST_PICTURES = 24
_LONGEST = 48  # pixels of a side
_ACROSS = 8  # pictures of a row
_STEP, _CAPTION = 1.1, 0.6  # in sides of a picture


@kit.result("error-consistency", "Error consistency of two models", figures={})
class ErrorConsistency(kit.Result):
    """Whether two models err on the same images; one row per image on which they differ.

    Whether two models err on the same images: Cohen's kappa is 0 for independent errors of
    models with these accuracies and 1 for the same errors.
    """

    image: np.ndarray = kit.column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    only_first: np.ndarray = kit.column(
        "First only", "", "whether only the first model classifies the image correctly"
    )
    position: np.ndarray = kit.column(
        "Position", "", "index of the image in the data; -1 where it is not known"
    )
    target: kit.Texts = kit.column("Target", "", "class of the image")
    first: kit.Texts = kit.column("First prediction", "", "class that the first model predicts")
    second: kit.Texts = kit.column(
        "Second prediction", "", "class that the second model predicts"
    )
    images: int = kit.scalar("Images", "", "number of images", default=0)
    only_one: kit.Number = kit.estimate(
        "fraction of images that only one model classifies correctly",
        "%",
        asks="Which images does only one model classify correctly?",
        comparison="none",
    )
    kappa: kit.Number = kit.estimate(
        "error consistency (Cohen's kappa)",
        "",
        "(observed - expected) / (1 - expected) agreement",
        asks="Do the models err on the same images?",
        comparison="none",
    )
    first_model: str = kit.scalar("First model", "", "name of the first model", default="")
    second_model: str = kit.scalar("Second model", "", "name of the second model", default="")

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
    kappa = (c_obs - c_exp) / (1 - c_exp). The interval is `kappa_interval`; there is none if
    one of the models has fewer than 5 correct or 5 wrong predictions. Kappa is NaN if 1 - c_exp
    is 0, and 0 in any case if only one model is correct, or wrong, on all images: c_obs is
    c_exp then.

    Source: Geirhos, Meding and Wichmann (2020), Beyond accuracy: quantifying trial-by-trial
    behaviour of CNNs and humans by measuring error consistency.
    """
    if not len(first) or not np.array_equal(first.target, second.target):
        raise kit.InputError(
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
        only_one=mean((a != b).astype(np.float64), proportion),
        kappa=kit.Number(kappa, low, high, missing=missing),
        first_model=names[0],
        second_model=names[1],
        provenance=replace(first.provenance, model=" and ".join(filter(None, names))),
    )


def compared(
    first: Outcomes, second: Outcomes, subject: kit.Subject, other: str
) -> Sequence[kit.Result]:
    """Error consistency of a model on images and another one, and the images that differ."""
    consistency = error_consistency(
        first,
        second,
        names=(subject.name, other),
        class_names=subject.images.class_names,
        positions=subject.images.positions,
    )
    if subject.preprocessing is None or not len(consistency):
        return (consistency,)  # pixels are not known
    return consistency, differing_pictures(consistency, subject.pixels_of)


@kit.result(
    "differing-pictures", "Images that only one model classifies correctly", table=False
)
class DifferingPictures(ImagePictures):
    """Images that only one of two models classifies correctly; one row for each image.

    The first of these images, at most 24, with their class and the predictions of the first
    (1) and the second (2) model of the title. The next table lists all.
    """

    target: kit.Texts = kit.column("Target", "", "class of the image")
    first: kit.Texts = kit.column("First prediction", "", "class that the first model predicts")
    second: kit.Texts = kit.column(
        "Second prediction", "", "class that the second model predicts"
    )
    images: int = kit.scalar(
        "Images", "", "number of images on which the models differ", default=0
    )
    first_model: str = kit.scalar("First model", "", "name of the first model", default="")
    second_model: str = kit.scalar("Second model", "", "name of the second model", default="")


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


@kit.figure(width=6.6, height=4.2, across=1, share=False)
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
    ax.text(0, -0.1, models, fontsize=7, color=style.INK, parse_math=False)
    ax.set(xlim=(0, _ACROSS * _STEP), ylim=(rows * down, -0.35), aspect="equal")
    ax.axis("off")
    return ax


_ASIDE = 1e-9  # of kappa, to the side of the estimate, where the standard error may be 0


def kappa_interval(counts: Float[np.ndarray, "2 2"]) -> tuple[float, float]:
    """The 95% interval of Cohen's kappa, with the standard error at each end of the interval.

    It holds each k with |kappa - k| <= 1.96 s(k), with kappa computed from the counts and s(k)
    its large-sample standard error in the table that has the observed marginals and kappa k. As
    s(k) is 0 at k = 1, the interval lies within it and has a positive width also for a kappa
    of 1, where the standard error of the observed table is 0. Marginals that differ by more
    than kappa k allows are moved towards their mean, and for a k below the kappa of models
    which are never both correct or never both wrong towards 1/2.

    Standard errors at the estimate, with tanh(artanh(kappa) ± ...) or without, cover a kappa of
    0.95 in 87 to 91% of samples of 64 to 500 images.

    Args:
        counts: number of images by outcome of the first model (rows: wrong, correct) and of the
            second one (columns).

    Returns:
        Both ends; NaN where one of the models has fewer than 5 correct or 5 wrong outcomes.

    Source: Fleiss, Cohen and Everitt (1969), Large sample standard errors of kappa and weighted
    kappa, for s; Wilson (1927), Probable inference, the law of succession, and statistical
    inference, for the standard error at the ends.
    """
    from scipy.optimize import brentq  # SciPy takes a while to import

    if min(counts.sum(0).min(), counts.sum(1).min()) < FEWEST_DIFFERENT:
        return float("nan"), float("nan")
    images = float(counts.sum())
    table = counts / images
    first, second = float(table[1].sum()), float(table[:, 1].sum())
    observed = 1 - (table[0, 1] + table[1, 0]) / _disagreement(first, second)

    def excess(kappa: float) -> float:
        error = _standard_error(_table_of(kappa, first, second), kappa, images)
        return abs(observed - kappa) - NORMAL_95 * error

    def end(limit: float) -> float:
        start = observed + float(np.sign(limit)) * _ASIDE
        if abs(start) >= 1 or excess(start) >= 0:
            return observed
        root: float = brentq(excess, start, limit, xtol=1e-9)  # pyrefly: ignore
        return float(root)

    return end(-1.0), end(1.0)


def _disagreement(first: float, second: float) -> float:
    """Fraction of images on which independent models with these accuracies disagree."""
    return first * (1 - second) + second * (1 - first)


def _table_of(kappa: float, first: float, second: float) -> Float[np.ndarray, "2 2"]:
    """Joint proportions with this kappa and these accuracies, or the nearest that exist.

    With m the mean of the accuracies and d their difference, the models disagree on a fraction
    (1 - kappa) (2 m (1 - m) + d^2 / 2) of the images, which must be at least |d| and at most
    2 min(m, 1 - m).
    """
    mean, difference, beyond = (first + second) / 2, first - second, 1 - kappa
    if kappa < 0:
        mean = float(np.clip(mean, 1 - 1 / beyond, 1 / beyond))
        room = max(4 * min(mean, 1 - mean) / beyond - 4 * mean * (1 - mean), 0.0)
        difference = float(np.clip(difference, -(room**0.5), room**0.5))
    independent = 2 * mean * (1 - mean)
    if abs(difference) > beyond * (independent + difference**2 / 2):
        largest = 2 * beyond * independent / (1 + np.sqrt(1 - 2 * beyond**2 * independent))
        difference = float(np.sign(difference) * largest)
    first, second = mean + difference / 2, mean - difference / 2
    disagree = beyond * (independent + difference**2 / 2)
    only_first, only_second = (disagree + difference) / 2, (disagree - difference) / 2
    table = np.array([[1 - first - only_second, only_second], [only_first, first - only_first]])
    return np.clip(table, 0, 1)


def _standard_error(table: Float[np.ndarray, "2 2"], kappa: float, images: float) -> float:
    """Standard error of kappa from a table of joint proportions."""
    rows, columns = table.sum(1), table.sum(0)
    expected = float(rows @ columns)
    diagonal = np.diag(table) @ (1 - (rows + columns) * (1 - kappa)) ** 2
    crossed = (1 - kappa) ** 2 * (
        table[0, 1] * (columns[0] + rows[1]) ** 2 + table[1, 0] * (columns[1] + rows[0]) ** 2
    )
    chance = (kappa - expected * (1 - kappa)) ** 2
    return float(np.sqrt(max(diagonal + crossed - chance, 0) / images) / (1 - expected))
