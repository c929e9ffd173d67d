"""Shapes of results: what a new analysis subclasses to have a figure, a table and a sentence.

A shape declares the columns that locate a value (its block, its pair of blocks, its place in a
picture). A subclass declares the values, and names the main one in `value_name`; where it has
intervals, it is an estimate::

    @result_type("token-norms")
    class TokenNorms(ScalarPerBlock):
        value_name = "norm"
        norm: np.ndarray = estimate("Token norm", "", "mean Euclidean norm of the tokens")

`visprism.drawing.shapes` draws every shape; a subclass may have other figures and
findings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from jaxtyping import Bool, Float, Int

from visprism.estimates.answers import POINTS
from visprism.estimates.estimated import Estimated
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text, selection_text, some_of
from visprism.table.result import ColumnInfo, Result, Texts, column, scalar

R = TypeVar("R", bound=Result)
P = TypeVar("P", bound="Pictures")


def in_sentence(label: str) -> str:
    """A label as it stands within a sentence; abbreviations and symbols keep their capitals.

    Example:
        >>> in_sentence("Token norm"), in_sentence("ViT, mean"), in_sentence("Δ log gain")
        ('token norm', 'ViT, mean', 'Δ log gain')
    """
    first = label.split(maxsplit=1)[0] if label else ""
    return label[:1].lower() + label[1:] if first[1:].islower() else label


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(column, scalar)
)
def result_shape(cls: type[R]) -> type[R]:
    """Declare a class that types of result inherit columns from, and that no file holds."""
    return dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)


@result_shape
class Valued(Result):
    """A result with one main column of values.

    Where the values are of several series, `series_name` is the column that tells them apart.
    """

    value_name: ClassVar[str] = "value"
    series_name: ClassVar[str] = ""

    @property
    def values(self) -> Float[np.ndarray, "rows"]:
        """The main column."""
        return np.asarray(getattr(self, self.value_name), dtype=float)

    @property
    def units(self) -> int:
        """Number of units that the intervals are taken over: images, unless overridden.

        0 if it is not recorded.
        """
        return self.provenance.images

    @property
    def intervals(self) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
        """Ends of the 95% intervals of the main column; NaN where there is none."""
        return self.intervals_of(self.value_name)

    @property
    def units_text(self) -> str:
        """What the intervals are taken over: ``128 test images``."""
        if not self.units:
            return "images"
        return images_text(self.units, self.provenance.split)

    def over(self) -> str:
        """What the intervals, or else the values, are taken over: the end of a sentence."""
        if not np.isfinite(self.intervals).any():
            estimated = isinstance(getattr(self, self.value_name), Estimated)
            one = "" if estimated else ": one number for all"
            return f"; over {self.units_text} (no interval{one})" if self.units > 1 else ""
        return f"; intervals over {self.units_text}"

    def series(self) -> dict[str, Int[np.ndarray, "n"]]:
        """Rows of each series, in order of first occurrence; without a column of them, all."""
        name = self.series_name
        labels = getattr(self, name).astype(str) if name else np.full(len(self), "")
        names = dict.fromkeys(labels.tolist())
        return {label: np.flatnonzero(labels == label) for label in names}

    @classmethod
    def value_info(cls) -> ColumnInfo:
        """Label, unit and meaning of the main column."""
        return cls.infos()[cls.value_name]

    @property
    def of_fractions(self) -> bool:
        """Whether the values are fractions or their differences, which are shown in percent."""
        declared = self.estimates().get(self.value_name)
        return declared is not None and declared.unit in ("%", POINTS)

    def _interval(self, row: int | np.integer) -> str:
        """Value, 95% interval and unit of one row."""
        low, high = (float(ends[row]) for ends in self.intervals)
        unit, form = self.value_info().unit, ".1%" if self.of_fractions else ".3g"
        text = interval_text(float(self.values[row]), low, high, form)
        return f"{text} {unit}" if unit else text


@result_shape
class PerBlock(Result):
    """One or more rows for each block, in forward order."""

    block: Texts = column("Block", "", "name of the block")
    kind: Texts = column("Kind", "", "'conv', 'attention', 'mlp', ...")
    stage: np.ndarray = column(
        "Stage", "", "0 for the stem, then one more each time that the grid shrinks"
    )
    depth: np.ndarray = column(
        "Normalized depth", "", "0 for the stem, 1 for the last block before the head"
    )
    subsampling: np.ndarray = column(
        "Subsampling", "", "whether its grid is smaller than the previous block's"
    )
    stream: np.ndarray | int = scalar(
        "Stream", "", "0 for what everything passes through; parallel streams from 1", default=0
    )

    def flagged(
        self, rows: Bool[np.ndarray, "rows"], text: str, code: str
    ) -> Iterator[Finding]:
        """A finding on the blocks of some rows, if there are any."""
        names = self.block[rows].tolist()
        if names:
            yield Finding(
                f"{text}: {len(names)} of {len(self)} blocks ({some_of(names)})", code
            )

    def first_rows(self) -> Bool[np.ndarray, "rows"]:
        """Whether a row is the first of its block."""
        return np.append([True], self.block[1:] != self.block[:-1])[: len(self)]


@result_shape
class ChangePerBlock(PerBlock):
    """Changes across blocks, each with the block that it refers to."""

    previous: Texts = column(
        "Previous block", "", "block that the changes refer to; empty if there is none"
    )
    between: Texts = column(
        "Blocks between", "", "blocks between the two that do not lie on a grid; usually empty"
    )

    def gaps(self) -> Iterator[str]:
        """A sentence for each change that includes a block off the grid."""
        for block, previous, missing in zip(
            self.block, self.previous, self.between, strict=True
        ):
            if missing and previous:
                yield (
                    f"the change across {block} refers to {previous}; it includes {missing}, "
                    "whose output does not lie on a grid, and is not counted by kind"
                )


BLOCK_COLUMNS = ("block", "kind", "stage", "depth", "subsampling")


@result_shape
class ValuedPerBlock(Valued, PerBlock):
    """Values of blocks, of one or several series."""

    def sentences(self) -> Iterator[str | Finding]:
        """Other answers, then first block, last block and largest value of each series."""
        for name, info in self.estimates().items():
            if info.question and (name != self.value_name or info.row == "mean over blocks"):
                known = (a for a in self._answers_of(name, info) if np.isfinite(a.value))
                yield from (answer.sentence(self.units_text) for answer in known)
        label = in_sentence(self.value_info().label)
        for name, rows in self.series().items():
            finite = rows[np.isfinite(self.values[rows])]
            if len(finite):
                ends = dict.fromkeys((finite[0], finite[-1]))
                ends = ", ".join(f"{self._interval(i)} at {self.block[i]}" for i in ends)
                text = f"{label} {ends}{self._largest(finite)}{self.over()}"
                yield f"{name}: {text}" if name else text

    def _largest(self, rows: Int[np.ndarray, "n"]) -> str:
        """The block with the largest value of several; "" if all values are the same."""
        values = self.values[rows]
        if len(rows) < 2 or not np.ptp(values):
            return ""
        most = rows[np.argmax(values)]
        selected = np.isfinite([ends[most] for ends in self.intervals]).all()
        return (
            f"; largest of {len(rows)} blocks: {self._interval(most)} at {self.block[most]}"
            f"{selection_text(len(rows)) if selected else ''}"
        )


@result_shape
class ScalarPerBlock(ValuedPerBlock):
    """One value for each block. Figure: the value against depth, with its 95% interval.

    A subclass names the vertical axis in `scale`: "linear", from "zero", or "log".
    """

    scale: ClassVar[str] = "linear"

    def has_figure(self, *, quantity: str = "", **_: Any) -> bool:
        """Whether any block has a value of the quantity."""
        return bool(np.isfinite(getattr(self, quantity or self.value_name)).any())

    def scalars(self) -> dict[str, float]:
        """The answers, and the mean over blocks."""
        finite = self.values[np.isfinite(self.values)]
        name = f"{self.identifier}.{self.identifier}:blocks"
        return super().scalars() | ({name: finite.mean()} if len(finite) else {})


@result_shape
class SeriesPerBlock(ValuedPerBlock):
    """Several values for each block, one of each series; a row for each block and series.

    A subclass names the column of the series in `series_name`. Figure: a line for each series
    against depth, with 95% intervals.
    """

    series_name: ClassVar[str] = "series"


@result_shape
class BlockMatrix(Valued, PerBlock):
    """A value for each ordered pair of blocks, the first block changing slowest.

    `block` and the other columns of `PerBlock` describe the first block of a pair. Figure: a
    matrix, with lines between stages.
    """

    other: Texts = column("Other block", "", "name of the second block of the pair")
    other_kind: Texts = column("Kind of the other block")
    other_stage: np.ndarray = column("Stage of the other block")
    other_depth: np.ndarray = column("Normalized depth of the other block")

    def matrix(self, name: str = "") -> np.ndarray:
        """A column (by default the main one) as a matrix: first block by other block."""
        rows = len(dict.fromkeys(self.block.tolist()))
        return np.asarray(getattr(self, name or self.value_name)).reshape(rows, -1)

    def sentences(self) -> Iterator[str | Finding]:
        """Mean over pairs of different blocks, and the largest of them."""
        pairs = np.flatnonzero((self.block != self.other) & np.isfinite(self.values))
        if not len(pairs):
            return
        most = pairs[np.argmax(self.values[pairs])]
        label = self.value_info().label
        yield (
            f"{label}, mean over {len(pairs)} pairs of different blocks: "
            f"{self.values[pairs].mean():.3g}; largest of them: {self._interval(most)} "
            f"({self.block[most]}, {self.other[most]}){self.over()}"
        )


@result_shape
class Curve(Valued):
    """A value as a function of one variable; a row for each point.

    A subclass names the variable in `x_name`, and in `series_name` the column that tells
    several curves apart, if there are several. `scale` names the vertical axis: "linear", or
    from "zero". Figure: lines with 95% intervals.
    """

    x_name: ClassVar[str] = "x"
    scale: ClassVar[str] = "linear"

    def series(self) -> dict[str, np.ndarray]:
        """Rows of each curve, by its name, in the order of the variable."""
        x = np.asarray(getattr(self, self.x_name))
        return {name: rows[np.argsort(x[rows])] for name, rows in super().series().items()}

    def sentences(self) -> Iterator[str | Finding]:
        """Both ends of each curve."""
        x, x_info = getattr(self, self.x_name), self.infos()[self.x_name]
        label = in_sentence(self.value_info().label)
        unit = f" {x_info.unit}" if x_info.unit else ""
        for name, rows in self.series().items():
            first, last = rows[0], rows[-1]
            yield (
                f"{name + ': ' if name else ''}{label} {self._interval(first)} at "
                f"{in_sentence(x_info.label)} {x[first]:.3g}{unit}, {self._interval(last)} at "
                f"{x[last]:.3g}{unit}{self.over()}"
            )


@result_shape
class Surface(Valued):
    """A value as a function of two variables, on a rectangular grid; a row for each point.

    A subclass names the variables in `x_name` and `y_name`. Figure: filled contours.
    """

    x_name: ClassVar[str] = "x"
    y_name: ClassVar[str] = "y"

    def sentences(self) -> Iterator[str | Finding]:
        """Smallest and largest value, and where they lie."""
        rows = np.flatnonzero(np.isfinite(self.values))
        if not len(rows):
            return
        x, y = getattr(self, self.x_name), getattr(self, self.y_name)
        ends = [rows[np.argmin(self.values[rows])], rows[np.argmax(self.values[rows])]]
        least, most = (f"{self._interval(i)} at ({x[i]:.3g}, {y[i]:.3g})" for i in ends)
        label = in_sentence(self.value_info().label)
        text = f"{label}: smallest of {len(rows)} points {least}, largest {most}{self.over()}"
        yield text


@result_shape
class Pictures(Valued):
    """Several pictures of one size each; a row for each pixel. Figure: side by side.

    A subclass names the scale of colors in `scale`: "linear", or "log" over four decades.
    """

    scale: ClassVar[str] = "linear"

    picture: Texts = column("Picture", "", "name of the picture")
    row: np.ndarray = column("Row", "", "of the pixel, from 0 at the top")
    column: np.ndarray = column("Column", "", "of the pixel, from 0 at the left")

    def has_figure(self, **_: Any) -> bool:
        """Whether any pixel has a value."""
        return bool(np.isfinite(self.values).any())

    @classmethod
    def of_pictures(
        cls: type[P], pictures: Mapping[str, Float[np.ndarray, "h w"]], **columns: Any
    ) -> P:
        """Pictures of these values by their names, with further columns."""
        return cls(**picture_columns(pictures, cls.value_name), **columns)

    def pictures(self) -> dict[str, Float[np.ndarray, "h w"]]:
        """Each picture as an array, by its name."""
        images = {}
        for name in dict.fromkeys(self.picture.tolist()):
            rows = self.picture == name
            image = np.full((self.row[rows].max() + 1, self.column[rows].max() + 1), np.nan)
            image[self.row[rows], self.column[rows]] = self.values[rows]
            images[name] = image
        return images

    def sentences(self) -> Iterator[str | Finding]:
        """Range of the values of each picture, and the number of images."""
        label = in_sentence(self.value_info().label)
        for name, image in self.pictures().items():
            if np.isfinite(image).any():
                ends = f"{np.nanmin(image):.3g} to {np.nanmax(image):.3g} by position"
                yield f"{label}, {name}: {ends} over {self.units_text}"


def picture_columns(
    pictures: Mapping[str, Float[np.ndarray, "h w"]], value_name: str
) -> dict[str, Any]:
    """The columns of `Pictures`, a row for each pixel, and the column of its values."""
    places = [np.indices(picture.shape).reshape(2, -1) for picture in pictures.values()]
    row, column = np.concatenate(places, axis=1)
    return {
        "picture": np.repeat(list(pictures), [p.shape[1] for p in places]),
        "row": row,
        "column": column,
        value_name: np.concatenate([picture.ravel() for picture in pictures.values()]),
    }
