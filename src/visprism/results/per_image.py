"""Values of single images, from which differences between two models are computed.

Two models that are measured on the same images differ by less noise than their two intervals
suggest: what makes an image difficult is difficult for both. The difference is taken image by
image, and its interval is over images.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.statistics import (
    FEWEST_DIFFERENT,
    mean_interval,
    paired_proportions_interval,
    t_interval,
)
from visprism.results.base import ColumnInfo, Columns, Result, column, result_type, scalar

ACCURACY = "accuracy"  # of each image, 1 for a correct prediction
LOSSES = ("NLL", "Brier score", "signed ECE (mean confidence - accuracy)")  # of predictions
DIRECTION_PAIRS = "direction pairs"  # of a loss landscape, as `PerImage.over`
MIN_UNITS = 10  # mini-batches; intervals over fewer do not hold their level
MIN_DIRECTION_PAIRS = 3  # means over random directions are closer to normal

_set = object.__setattr__  # fields of a frozen dataclass are set while it is made


def _with_codes(values: dict[str, Any]) -> dict[str, Any]:
    """Values of schema 1, which held the name of the quantity in every row."""
    values = dict(values)
    names, codes = coded_names(values.pop("quantity"))
    return {**values, "names": "\n".join(names), "code": codes}


@result_type("per-image", schema=2, upgrades={1: _with_codes})
class PerImage(Result):
    """One value of each quantity for each image.

    A quantity is the one whose mean over images the measurement reports. Where that mean is a
    ratio, the measurement stores logarithms. A quantity that is no mean over images is stored
    linearized: as the quantity plus the influence of each image, whose mean is 0.

    Names are stored once, and each row holds the index of its name, since names are long and
    rows are many. Quantities of a training loss have one value for each mini-batch, and those
    of a landscape one for each pair of random directions; then `over` says so, and `image` is
    the index of the mini-batch or of the pair.

    Raises:
        InputError: if an image has two values of one quantity, a name has a line break, or a
            code has no name.
    """

    code: np.ndarray = column("Code", "", "index of the quantity in `names`")
    image: np.ndarray = column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    value: np.ndarray = column("Value", "", "value of the quantity for this image")
    names: str = scalar("Names", "", "names of the quantities, one on each line", default="")
    over: str = scalar("Over", "", "what has one value each", default="images")

    def __init__(
        self,
        *,
        image: np.ndarray,
        value: np.ndarray,
        quantity: np.ndarray | None = None,
        code: np.ndarray | None = None,
        names: str = "",
        over: str = "images",
        provenance: Provenance | None = None,
    ) -> None:
        """Values with the name of their quantity, or with its index in `names`.

        Args:
            image: index of the image in the data, for each row.
            value: value of the quantity for this image.
            quantity: name of the quantity of each row; None if `code` is given.
            code: index of the quantity of each row in `names`.
            names: names of the quantities, one on each line, in the order of `code`.
            over: what has one value each.
            provenance: where the values come from.
        """
        if quantity is not None and code is None:
            table, codes = coded_names(quantity)
        elif code is not None and quantity is None:
            table, codes = _lines(names), code
        else:
            raise InputError("either quantity or code must be given, got both or neither")
        if len(codes) and not (
            codes.dtype.kind in "iu" and 0 <= codes.min() <= codes.max() < len(table)
        ):
            raise InputError(
                f"code must hold indices of {len(table)} names, got values from "
                f"{codes.min()} to {codes.max()}"
            )
        used, codes = _in_order_of_rows(codes)
        _set(self, "code", codes)
        _set(self, "image", image)
        _set(self, "value", value)
        _set(self, "names", "\n".join(table[i] for i in used))
        _set(self, "over", over)
        _set(self, "provenance", provenance or Provenance())
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        for index, name in enumerate(self.quantities):
            images = self.image[self.code == index]
            if len(np.unique(images)) < len(images):
                raise InputError(f"each image must have one value of {name!r}, got several")

    @property
    def quantities(self) -> tuple[str, ...]:
        """The names of the quantities, in the order of their first rows."""
        return _lines(self.names)

    @property
    def quantity(self) -> np.ndarray:
        """The name of the quantity of each row."""
        return np.array(self.quantities or ("",))[self.code]

    @classmethod
    def infos(cls) -> dict[str, ColumnInfo]:
        """Label, unit and meaning of the columns of the table; see `Result.infos`."""
        name = ColumnInfo("Quantity", "", "name of the quantity, such as 'NLL'")
        others = super().infos()
        return {"quantity": name, **{n: others[n] for n in ("image", "value")}}

    def columns(self) -> Columns:
        """The table by column, with names in place of codes; see `Result.columns`."""
        return {name: getattr(self, name) for name in self.infos()}

    def values_of(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """The images in ascending order and their values of a quantity.

        Raises:
            InputError: if the quantity was not measured.
        """
        if quantity not in self.quantities:
            raise InputError(
                f"quantity must be one of {', '.join(self.quantities)}, got {quantity!r}"
            )
        rows = np.flatnonzero(self.code == self.quantities.index(quantity))
        rows = rows[np.argsort(self.image[rows])]
        return self.image[rows], self.value[rows]


@result_type("differences")
class Differences(Result):
    """Differences between two models on the same images; one row for each quantity."""

    quantity: np.ndarray = column("Quantity", "", "name of the quantity")
    first: np.ndarray = column("First", "", "mean of the first model over the common images")
    second: np.ndarray = column("Second", "", "mean of the second model over the common images")
    difference: np.ndarray = column("Difference", "", "second minus first")
    low: np.ndarray = column("Low", "", "lower end of the 95 % interval of the difference")
    high: np.ndarray = column("High", "", "upper end of the 95 % interval of the difference")
    images: np.ndarray = column("Images", "", "number of common images, or of what `over` says")
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")
    over: str = scalar("Over", "", "what the interval is taken over", default="images")

    @property
    def significant(self) -> np.ndarray:
        """Whether the interval of each difference excludes 0."""
        return (self.low > 0) | (self.high < 0)


def paired_differences(first: PerImage, second: PerImage) -> Differences:
    """Mean differences between two models on their common images, with 95 % intervals.

    Where both hold values of mini-batches, everything is over common mini-batches. With
    d_i = second_i - first_i over n common images, the difference is mean(d). Its interval is
    that of `visprism.core.statistics.mean_interval`, Student's with a correction for skewed
    differences; there is none where fewer than 5 images differ from the median difference. Of
    mini-batches and of direction pairs, which are few, it is Student's, and NaN for fewer than
    10 mini-batches or 3 direction pairs. Where all values
    are 0 or 1, as for correct classification, the interval is that of Bonett and Price, which
    does not shrink to a point when the models agree on every image. NLL, Brier score and signed
    calibration error have an interval if each model has at least 5 correct and 5 wrong
    predictions of the common images, see `enough_outcomes`.

    Quantities that only one of them has are left out.

    Args:
        first: values of the first model.
        second: values of the second model, on the same data; images are matched by index.

    Raises:
        InputError: if the two have no quantity in common, or no image, or if one has values of
            images and the other of mini-batches.

    Source: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data.
    """
    quantities = [name for name in first.quantities if name in second.quantities]
    if not quantities:
        raise InputError(
            "first and second must have a quantity in common, got "
            f"{', '.join(first.quantities)} and {', '.join(second.quantities)}"
        )
    if first.over != second.over:
        raise InputError(
            "first and second must both have values of the same units, got values of "
            f"{first.over} and of {second.over}"
        )
    rows = [_difference(name, first, second) for name in quantities]
    means_first, means_second, differences, lows, highs, numbers = zip(*rows, strict=True)
    models = first.provenance.model, second.provenance.model
    return Differences(
        quantity=np.array(quantities),
        first=np.array(means_first),
        second=np.array(means_second),
        difference=np.array(differences),
        low=np.array(lows),
        high=np.array(highs),
        images=np.array(numbers),
        first_model=models[0],
        second_model=models[1],
        over=first.over,
        provenance=replace(
            first.provenance,
            model=" and ".join(filter(None, models)),
            images=max(numbers) if first.over == "images" else first.provenance.images,
        ),
    )


def linearized_ratio(
    totals: Float[np.ndarray, " n"], counts: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """A value for each unit, whose mean is the ratio of the sums over units.

    It is the ratio plus the influence of the unit, r + (total - r count) / mean count, so that
    the spread of the values gives the standard error of the ratio, and the spread of paired
    differences that of the difference of two ratios.

    Source: Cochran (1977), Sampling techniques, sec. 6.3 and 6.9.
    """
    ratio = totals.sum() / counts.sum()
    return ratio + (totals - ratio * counts) / counts.mean()


def _difference(
    quantity: str, first: PerImage, second: PerImage
) -> tuple[float, float, float, float, float, int]:
    """Both means, the difference, its interval, and the number of images or mini-batches."""
    (images_a, values_a), (images_b, values_b) = (
        result.values_of(quantity) for result in (first, second)
    )
    images, at_a, at_b = np.intersect1d(images_a, images_b, return_indices=True)
    if not len(images):
        raise InputError(
            f"first and second must have {first.over} in common, got none for {quantity}"
        )
    a, b = values_a[at_a].astype(np.float64), values_b[at_b].astype(np.float64)
    fewest = MIN_DIRECTION_PAIRS if first.over == DIRECTION_PAIRS else MIN_UNITS
    if (first.over != "images" and len(images) < fewest) or (
        quantity in LOSSES
        and not all(_enough_of_both(result, images) for result in (first, second))
    ):
        low = high = float("nan")
    elif _binary(a) and _binary(b):
        low, high = paired_proportions_interval(
            int(((a == 0) & (b == 1)).sum()), int(((a == 1) & (b == 0)).sum()), len(images)
        )
    elif first.over == "images":
        low, high = mean_interval(b - a)
    else:
        error = (b - a).std(ddof=1) / np.sqrt(len(images))
        low, high = t_interval(float((b - a).mean()), float(error), len(images))
    return float(a.mean()), float(b.mean()), float((b - a).mean()), low, high, len(images)


def enough_outcomes(correct: Bool[np.ndarray, " n"]) -> bool:
    """Whether means of losses have an interval: from 5 correct and 5 wrong predictions on.

    A few predictions that differ from all others make most of the variance of such a mean, and
    how many there are is a matter of chance.
    """
    number = int(correct.sum())
    return min(number, len(correct) - number) >= FEWEST_DIFFERENT


def _enough_of_both(result: PerImage, images: Int[np.ndarray, " n"]) -> bool:
    """Whether these images have enough correct and wrong predictions, where these are known."""
    if ACCURACY not in result.quantities:
        return True
    of, correct = result.values_of(ACCURACY)
    return enough_outcomes(correct[np.isin(of, images)] == 1)


def _binary(values: Float[np.ndarray, " n"]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def coded_names(names: np.ndarray) -> tuple[tuple[str, ...], Int[np.ndarray, " n"]]:
    """The distinct names in the order of their first rows, and the index of each row's name.

    Raises:
        InputError: if a name has a line break.
    """
    rows = [str(name) for name in names.tolist()]
    index = {name: i for i, name in enumerate(dict.fromkeys(rows))}
    for name in index:
        if len(_lines(name)) != 1:
            raise InputError(f"names of quantities must be one line each, got {name!r}")
    return tuple(index), np.array([index[name] for name in rows], dtype=np.int64)


def _lines(names: str) -> tuple[str, ...]:
    return tuple(names.split("\n")) if names else ()


def _in_order_of_rows(
    codes: Integer[np.ndarray, " n"],
) -> tuple[list[int], Integer[np.ndarray, " n"]]:
    """The codes in use in the order of their first rows, and the rows by position in these.

    Results with equal rows are equal, however their names were listed.
    """
    used, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    position = np.argsort(order)
    smallest = np.min_scalar_type(max(len(used) - 1, 0))
    return used[order].tolist(), position[inverse].astype(smallest)
