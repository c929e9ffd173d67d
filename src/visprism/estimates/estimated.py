"""Estimated numbers: a value, its 95% interval, and the values of single images behind it.

The values by unit (images, mini-batches, pairs of directions) are the one intermediate of every
statistic with an interval: means, errors and paired differences are computed from them here. A
statistic that is not a mean stands by unit as its jackknife pseudo-values or linearized values,
whose mean is the statistic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Num

from visprism.core.statistics import (
    mean_fraction_interval,
    mean_interval,
    paired_proportions_interval,
    t_quantile,
    wilson,
)
from visprism.estimates.text import interval_text

Ends = tuple[np.ndarray, np.ndarray]
Interval = Callable[[Float[np.ndarray, "n rows"]], Ends]


class Estimated(np.ndarray):
    """A column of estimates: an array of values with `low`, `high`, `by_unit` and `missing`.

    Rows that are selected keep their intervals; the result of arithmetic is a plain array.

    Attributes:
        low, high: ends of the 95% intervals, NaN where there is none.
        by_unit: (units, rows) values whose mean over units is the estimate, in the order of the
            data; None where there are none.
        missing: why there is no interval, where the values do not show it.
    """

    low: np.ndarray
    high: np.ndarray
    by_unit: np.ndarray | None
    missing: str

    def __new__(  # noqa: D102
        cls,
        value: Any,
        low: Any = None,
        high: Any = None,
        by_unit: np.ndarray | None = None,
        missing: str = "",
    ) -> "Estimated":
        made = np.array(value, dtype=np.float64).view(cls)
        made.low, made.high = (
            np.full(made.shape, np.nan) if end is None else np.array(end, dtype=np.float64)
            for end in (low, high)
        )
        made.by_unit, made.missing = by_unit, missing
        return made

    def __array_finalize__(self, obj: Any) -> None:
        """Arrays that NumPy makes of it, such as a reshaped one, have no intervals."""
        self.low = self.high = np.full(self.shape, np.nan)
        self.by_unit, self.missing = None, ""

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __getitem__(self, rows: Any) -> Any:
        part = np.asarray(self)[rows]
        within = rows if isinstance(rows, tuple) else (rows,)
        by_unit = None if self.by_unit is None else self.by_unit[(slice(None), *within)]
        if np.ndim(part):
            return Estimated(part, self.low[rows], self.high[rows], by_unit, self.missing)
        missing = "" if np.isfinite(self.low[rows]) else self.missing
        return Number(part, self.low[rows], self.high[rows], by_unit, missing)

    def __reduce__(self) -> Any:
        return Estimated, (np.asarray(self), self.low, self.high, self.by_unit, self.missing)

    def __deepcopy__(self, _memo: Any) -> "Estimated":
        return self[:]


class Number(float):
    """One estimate: a float with `low`, `high`, `by_unit` and `missing`; see `Estimated`."""

    low: float
    high: float
    by_unit: np.ndarray | None  # (units,)
    missing: str

    def __new__(  # noqa: D102
        cls,
        value: Any,
        low: Any = np.nan,
        high: Any = np.nan,
        by_unit: np.ndarray | None = None,
        missing: str = "",
    ) -> "Number":
        made = super().__new__(cls, value)
        made.low, made.high = float(low), float(high)
        made.by_unit, made.missing = by_unit, missing
        return made

    def text(self, form: str = ".3g") -> str:
        """The value with its interval, if it has one: ``93.1% [92.6%, 93.6%]``."""
        return interval_text(float(self), self.low, self.high, form)

    def __reduce__(self) -> Any:
        return Number, (float(self), self.low, self.high, self.by_unit, self.missing)


# Intervals of means over units, column by column.


def student(values: Float[np.ndarray, "n rows"]) -> Ends:
    """Student's t; NaN for fewer than 2 units."""
    n = np.isfinite(values).sum(0)
    with np.errstate(all="ignore"):
        mean = np.nanmean(np.where(n > 0, values, 0.0), 0)
        squares = np.nansum((values - mean) ** 2, 0)
        error = np.where(
            n > 1, np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1)), np.nan
        )
    half = np.array([t_quantile(int(k)) if k > 1 else np.nan for k in n]) * error
    return mean - half, mean + half


def skewed(values: Float[np.ndarray, "n rows"]) -> Ends:
    """Student's, corrected for skewed values; see `mean_interval`."""
    return _by_column(mean_interval, values)


def not_negative(values: Float[np.ndarray, "n rows"]) -> Ends:
    """The ends of `skewed`, at least 0."""
    low, high = skewed(values)
    return np.maximum(low, 0.0), high


def within_one(values: Float[np.ndarray, "n rows"]) -> Ends:
    """The ends of `skewed`, within 0 and 1.

    Where the fractions of all units are 0 it is 0 to 1 - 0.025^(1/n), Clopper and Pearson's.
    """
    low, high = (np.clip(end, 0.0, 1.0) for end in skewed(values))
    none = ~values.any(0)
    return np.where(none, 0.0, low), np.where(none, 1 - 0.025 ** (1 / len(values)), high)


def proportion(values: Float[np.ndarray, "n rows"]) -> Ends:
    """Wilson's interval of the share of units whose value is 1; NaN where none has a value.

    For values that are not all 0 or 1, such as the label accuracy of an image, `skewed`.
    """
    if not np.isin(values, (0.0, 1.0)).all(where=np.isfinite(values)):
        return skewed(values)
    n = np.isfinite(values).sum(0)
    low, high = wilson(np.nansum(values, 0).astype(int), n)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def paired_proportion(values: Float[np.ndarray, "n rows"]) -> Ends:
    """Bonett and Price's interval of a mean of -1, 0 and 1: a difference of two proportions.

    For other values, Student's.
    """
    if not np.isin(values, (-1.0, 0.0, 1.0)).all(where=np.isfinite(values)):
        return student(values)

    def ends(column: np.ndarray) -> tuple[float, float]:
        return paired_proportions_interval(
            int((column > 0).sum()), int((column < 0).sum()), len(column)
        )

    return _by_column(ends, values)


def fraction(values: Float[np.ndarray, "n rows"]) -> Ends:
    """Interval of a mean of fractions of each unit, within 0 and 1."""
    n = len(values)
    mean = values.mean(0)
    error = values.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(mean), np.nan)
    return mean_fraction_interval(mean, error, n)


def fraction_of_correct(values: Float[np.ndarray, "n rows"]) -> Ends:
    """`proportion` of values 0 and 1, and `within_one` of means of several of them."""
    return proportion(values) if np.isin(values, (0.0, 1.0)).all() else within_one(values)


def accuracy_drop(values: Float[np.ndarray, "n rows"]) -> Ends:
    """`paired_proportion` of values -1, 0 and 1, and `skewed` of means of several of them."""
    binary = np.isin(values, (-1.0, 0.0, 1.0)).all()
    return paired_proportion(values) if binary else skewed(values)


def no_interval(values: Float[np.ndarray, "n rows"]) -> Ends:
    """NaN: there is no interval."""
    return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)


def _by_column(ends: Callable[[np.ndarray], tuple[float, float]], values: np.ndarray) -> Ends:
    present = [column[np.isfinite(column)] for column in values.T]
    pairs = [ends(column) if len(column) else (np.nan, np.nan) for column in present]
    low, high = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return low, high


# Estimates from values by unit. One axis gives a `Number`, two axes an `Estimated` column.


def mean(values: Float[np.ndarray, "n *rows"], interval: Interval = student) -> Any:
    """Mean over units. A unit whose value is NaN is left out of that row.

    Args:
        values: (units,) or (units, rows).
        interval: of the mean of a column.
    """
    table = values.reshape(len(values), -1)
    present = np.isfinite(table)
    n = present.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        average = np.where(present, table, 0.0).sum(0) / n
    return _made(values.ndim, average, *interval(table), table)


def ratio(
    a: Float[np.ndarray, "n *rows"],
    b: Float[np.ndarray, "n *rows"],
    interval: Interval = student,
) -> Any:
    """Mean of a over mean of b. By unit it is linearized: R + (a - R b) / mean(b).

    NaN where the mean of b is 0.

    Source: Cochran (1977), Sampling techniques, sec. 2.11 and 6.3.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.where(b.mean(0) > 0, b.mean(0), np.nan)
        by_unit = (value := a.mean(0) / scale) + (a - value * b) / scale
    table = by_unit.reshape(len(a), -1)
    return _made(a.ndim, np.atleast_1d(value), *interval(table), table)


def jackknife(
    statistic: Callable[..., Float[np.ndarray, "*rows"] | float],
    *values: Num[np.ndarray, "n *_"],
    interval: Interval = student,
) -> Any:
    """A statistic of all units; by unit, its pseudo-values n s - (n - 1) s without the unit.

    Costs n + 1 computations of the statistic.

    Source: Efron and Tibshirani (1993), An introduction to the bootstrap, ch. 11.
    """
    n = len(values[0])
    every = np.asarray(statistic(*values), dtype=np.float64)
    without = np.stack(
        [statistic(*(np.delete(v, unit, axis=0) for v in values)) for unit in range(n)]
    )
    by_unit = n * every - (n - 1) * without
    low, high = interval(by_unit.reshape(n, -1))
    shift = np.atleast_1d(every) - by_unit.reshape(n, -1).mean(0)  # the jackknife's bias
    return _made(
        by_unit.ndim, np.atleast_1d(every), low + shift, high + shift, by_unit.reshape(n, -1)
    )


def stacked(numbers: Sequence[Number]) -> Estimated:
    """The column of several estimates; the reason for missing intervals is the first one."""
    units = [number.by_unit for number in numbers if number.by_unit is not None]
    together = len(units) == len(numbers) and len({*map(len, units)}) == 1
    return Estimated(
        np.array([float(number) for number in numbers]),
        np.array([number.low for number in numbers]),
        np.array([number.high for number in numbers]),
        np.stack(units, axis=1) if together else None,
        next((number.missing for number in numbers if number.missing), ""),
    )


@dataclass(frozen=True)
class Reduce:
    """How values by unit become a number with its interval; declared by each `estimate`.

    Attributes:
        compute: from values (units,) or (units, rows) to a `Number` or an `Estimated` column.
        names: of the values that it takes; empty: those with the name of the estimate.
        interval: of a mean over rows of such a column.
    """

    compute: Callable[..., Any]
    names: tuple[str, ...] = ()
    interval: Interval = student

    MEAN: ClassVar["Reduce"]  # Student's t
    SKEWED: ClassVar["Reduce"]  # corrected for skewed values
    NOT_NEGATIVE: ClassVar["Reduce"]  # the same, of values of at least 0
    WITHIN_ONE: ClassVar["Reduce"]  # the same, of fractions of each unit
    FRACTION: ClassVar["Reduce"]  # a mean of fractions of each unit, within 0 and 1
    PROPORTION: ClassVar["Reduce"]  # Wilson's, of values 0 and 1
    PAIRED: ClassVar["Reduce"]  # Bonett and Price's, of values -1, 0 and 1
    CORRECT: ClassVar["Reduce"]  # `PROPORTION`, and `WITHIN_ONE` of means of several
    DROP: ClassVar["Reduce"]  # `PAIRED`, and `SKEWED` of means of several
    NONE: ClassVar["Reduce"]  # a mean without an interval

    @staticmethod
    def ratio(numerator: str, denominator: str) -> "Reduce":
        """Mean of one value over the mean of another; see `ratio`."""
        return Reduce(ratio, (numerator, denominator))

    @staticmethod
    def jackknife(statistic: Callable[..., Any], *names: str) -> "Reduce":
        """A statistic of all units, with the jackknife's interval; see `jackknife`."""
        return Reduce(partial(jackknife, statistic), names)

    @staticmethod
    def by_row(statistic: Callable[..., Number], *names: str) -> "Reduce":
        """A column of a statistic of the values (units,) of each row."""

        def column(*values: np.ndarray) -> Estimated:
            return stacked(
                [statistic(*row) for row in zip(*(v.T for v in values), strict=True)]
            )

        return Reduce(column, names)

    def average(self, by_unit: Float[np.ndarray, "n rows"]) -> Number:
        """The mean over rows of a column of estimates, from its values by unit."""
        return mean(by_unit.mean(1), self.interval)

    def of(self, *names: str) -> "Reduce":
        """The same reduction of values with other names than the estimate's."""
        return replace(self, names=names)


def _mean_with(interval: Interval) -> Reduce:
    return Reduce(partial(mean, interval=interval), interval=interval)


Reduce.MEAN, Reduce.SKEWED, Reduce.NOT_NEGATIVE, Reduce.FRACTION, Reduce.WITHIN_ONE = map(
    _mean_with, (student, skewed, not_negative, fraction, within_one)
)
Reduce.PROPORTION, Reduce.PAIRED, Reduce.CORRECT, Reduce.DROP, Reduce.NONE = map(
    _mean_with, (proportion, paired_proportion, fraction_of_correct, accuracy_drop, no_interval)
)


def _made(axes: int, value: np.ndarray, low: np.ndarray, high: np.ndarray, by_unit: np.ndarray):
    if axes > 1:
        return Estimated(value, low, high, by_unit)
    return Number(value[0], low[0], high[0], by_unit[:, 0])
