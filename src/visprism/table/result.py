"""Results: what a measurement returns, a table of NumPy columns with units and provenance.

A result is a frozen dataclass declared with `result_type`. Its array fields are columns of one
length, one observation per row; its other fields are scalars that hold for every row. A field
declares its label, unit and meaning once, with `column`, `scalar` or `estimate`; axis labels,
table heads, answers, differences and the reference are made from these declarations. A result
holds no model, tensor or figure, so that it can be saved, compared and drawn anywhere.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

import numpy as np

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.registry import import_all, load_plugins
from visprism.estimates.answers import POINTS, Answer, EstimateInfo
from visprism.estimates.estimated import Estimated, Number
from visprism.estimates.findings import Finding
from visprism.estimates.questions import declared_question
from visprism.estimates.text import images_text
from visprism.table.notebook import html_table
from visprism.table.section import Section, reading_of
from visprism.table.stored import (
    UnknownTypeError,
    check_types,
    provenance_of,
    stored_values,
    with_interval,
    write_csv,
    write_values,
)

Columns = dict[str, np.ndarray]
Texts = Annotated[np.ndarray, str]
Texts.__doc__ = "The type of a column of texts; a column of type ``np.ndarray`` holds numbers."
R = TypeVar("R", bound="Result")  # not Self: the tests check types function by function


@dataclass(frozen=True)
class ColumnInfo:
    """How a field of a result is presented: label, unit and meaning."""

    label: str
    unit: str = ""  # "" for names, counts and pure numbers
    meaning: str = ""

    @property
    def heading(self) -> str:
        """Label with its unit: a table head or an axis label.

        Example:
            >>> ColumnInfo("Frequency", "π rad/pixel").heading
            'Frequency (π rad/pixel)'
        """
        return f"{self.label} ({self.unit})" if self.unit else self.label


def column(label: str, unit: str = "", meaning: str = "") -> Any:
    """A column of a result type: an array with one value per row."""
    return field(metadata={"column": ColumnInfo(label, unit, meaning)})


def scalar(label: str, unit: str = "", meaning: str = "", *, default: Any = MISSING) -> Any:
    """A field of a result type that holds for every row."""
    return field(default=default, metadata={"column": ColumnInfo(label, unit, meaning)})


def estimate(
    label: str,
    unit: str = "",
    meaning: str = "",
    *,
    default: Any = MISSING,
    asks: str = "",
    better: Literal["", "higher", "lower"] = "",
    **info: Any,
) -> Any:
    """A column or scalar with 95% intervals, and what follows from it.

    It holds an `Estimated` column or a `Number`, which `Result.reduced` makes from values by
    unit as `reduce` says. With a question it is one of the answers that models are compared by:
    their paired difference, its interval and the reason for a missing one follow.

    Args:
        label: of the quantity; a rewording changes no stored result.
        unit: of the value; "%" for fractions shown as percent in answers.
        meaning: formula or definition.
        default: of a scalar.
        asks: the question that it answers, such as "How accurate is the model?".
        better: which values answer it better, if one direction is.
        **info: fields of `EstimateInfo`: `reduce`, `row`, `over`, ...
    """
    if asks:
        info["question"] = declared_question(asks, better)
    declared = EstimateInfo(label, unit, meaning, **info)
    metadata = {
        # Fractions are stored as fractions, whatever answers show them as.
        "column": ColumnInfo(label, "" if unit in ("%", POINTS) else unit, meaning),
        "estimate": declared,
    }
    return field(default=default, metadata=metadata)


_TYPES: dict[str, "type[Result]"] = {}  # by identifier


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(column, scalar, estimate)
)
def result_type(
    identifier: str,
    title: str = "",
    *,
    figures: Mapping[str, Mapping[str, Any]] | None = None,
    table: bool = True,
    overview: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[type[R]], type[R]]:
    """Declare a class as a type of result that `Result.load` knows.

    The second paragraph of its docstring is the text of its section in reports: what the figure
    shows, and how to read it.

    Args:
        identifier: written into files; it never changes, whatever the class is called.
        title: of its section in reports.
        figures: options of each figure by the end of its file name, the main one first; by
            default one figure without options, and none if empty.
        table: whether reports show the rows.
        overview: options of its figures in the overview of a model by depth, by axis label.
    """

    def register(cls: type[R]) -> type[R]:
        if identifier in _TYPES:
            raise InputError(f"identifier must be new, got {identifier!r}, which is registered")
        made = dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
        made.identifier = identifier
        shown = {"": {}} if figures is None else figures
        made.section = Section(made, title, reading_of(made), shown, table, overview or {})
        _TYPES[identifier] = made
        return made

    return register


result = result_type


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """Base of all results. A type of result is declared with `result_type`.

    Two results are equal if they have the same type, columns and scalars, bit for bit, with NaN
    equal to NaN; where they come from (`provenance`) is not compared.
    """

    identifier: ClassVar[str] = ""
    section: ClassVar[Section]  # of a type that is declared
    drawn_in: ClassVar[str] = ""  # the type of result that has its figure
    row_names: ClassVar[tuple[str, ...]] = ()  # columns that tell the rows of answers apart
    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        for name, info in self.estimates().items():
            value = getattr(self, name)
            if not isinstance(value, Estimated | Number):  # without an interval
                make = Estimated if isinstance(value, np.ndarray) else Number
                value = make(value)
                object.__setattr__(self, name, value)
            if not (info.keep or info.question):
                value.by_unit = None
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: v for name, v in arrays.items() if isinstance(v, np.ndarray)}
        for name, values in arrays.items():
            if values.ndim != 1:
                raise ValueError(
                    f"columns of {type(self).__name__} must have one axis, got "
                    f"{name} of shape {values.shape}"
                )
            texts = name in _text_columns(type(self))
            right = values.dtype.kind in ("U" if texts else "biuf") and values.itemsize
            if len(values) and not right:
                declared = "texts" if texts else "numbers (visprism.Texts declares texts)"
                raise ValueError(f"{name} must be {declared}, got {values.dtype}")
        lengths = {name: len(v) for name, v in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"columns of {type(self).__name__} must have one length, got {lengths}"
            )

    def __len__(self) -> int:
        """Number of rows."""
        return max(
            (len(v) for v in vars(self).values() if isinstance(v, np.ndarray)), default=1
        )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _identical(getattr(self, f.name), getattr(other, f.name)) for f in _content(self)
        )

    def __hash__(self) -> int:
        """Equal results have equal hashes."""
        return hash((type(self), len(self), *(f.name for f in _content(self))))

    def __repr__(self) -> str:
        model = f" of {self.provenance.model}" if self.provenance.model else ""
        return f"<{type(self).__name__}{model}: {len(self)} rows>"

    def _repr_html_(self) -> str:
        """A table of the first rows with units, and the provenance folded away."""
        infos, columns = self.infos(), self.columns()
        heads = [infos[name].heading if name in infos else name for name in columns]
        table = html_table(heads, list(columns.values()))
        source = html.escape(self.provenance.sentence())
        return (
            f"<p><b>{html.escape(type(self).__name__)}</b></p>{table}"
            f"<details><summary>provenance</summary><p>{source}</p></details>"
        )

    @classmethod
    def infos(cls) -> dict[str, ColumnInfo]:
        """Label, unit and meaning of every column and scalar, in the order of declaration."""
        return {
            f.name: f.metadata.get("column", ColumnInfo(f.name))
            for f in fields(cls)
            if f.name != "provenance"
        }

    @classmethod
    def reduced(cls: type[R], values: Mapping[str, np.ndarray], **columns: Any) -> R:
        """The result whose estimates are made from values by unit, as each states by `reduce`.

        Args:
            values: by name, (units,) for a scalar and (units, rows) for a column.
            **columns: what is no estimate, and estimates that fit no `Reduce`.
        """
        for name, info in cls.estimates().items():
            names = info.reduce.names or (name,)
            if name not in columns and values.keys() >= {*names}:
                columns[name] = info.reduce.compute(*(values[n] for n in names))
        return cls(**columns)

    @classmethod
    def estimates(cls) -> dict[str, EstimateInfo]:
        """The declared estimates by name of the field."""
        return {f.name: f.metadata["estimate"] for f in fields(cls) if "estimate" in f.metadata}

    def columns(self) -> Columns:
        """The table by column; scalars are repeated in every row.

        The ends of the interval of an estimate ``x`` stand in ``x_low`` and ``x_high``.
        """
        n = len(self)
        return {
            name: np.broadcast_to(np.asarray(value), n)
            for f in _content(self)
            for name, value in _with_ends(f.name, getattr(self, f.name))
        }

    def to_pandas(self) -> Any:
        """The table as a data frame; units and provenance stand in its `attrs`."""
        import pandas  # optional

        frame = pandas.DataFrame({name: np.array(c) for name, c in self.columns().items()})
        frame.attrs = {
            "units": {name: info.unit for name, info in self.infos().items()},
            "provenance": asdict(self.provenance),
        }
        return frame

    def select(self: R, rows: np.ndarray) -> R:
        """The same result with the rows that a mask or an index selects."""
        columns = {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **{name: values[rows] for name, values in columns.items()})

    def with_provenance(self: R, **changes: Any) -> R:
        """The same result with changes to its provenance: ``with_provenance(model="vit")``."""
        return replace(self, provenance=replace(self.provenance, **changes))

    def measured(self: R, origin: Provenance) -> R:
        """The same result with its provenance; the protocol stays the result's."""
        return replace(self, provenance=replace(origin, protocol=self.provenance.protocol))

    def intervals_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 95% intervals of a column; NaN where the result has none.

        Args:
            name: of the column.
        """
        given = getattr(self, name)
        if isinstance(given, Estimated):
            return given.low, given.high
        missing = np.full(len(self), np.nan)
        return missing, missing

    def has_figure(self, **options: Any) -> bool:
        """Whether a figure with these options shows anything of this result."""
        return True

    def findings(self) -> tuple[Finding, ...]:
        """What the result says, one sentence per quantity, with values and intervals."""
        words = self.in_words
        every = (s if isinstance(s, Finding) else Finding(s) for s in self.sentences())
        return tuple(replace(finding, text=words(finding.text)) for finding in every)

    @property
    def in_words(self) -> Callable[[str], str]:
        """A function that puts texts on accuracy into the words of the task of the result."""
        if self.provenance.task == "classification":
            return str
        from visprism.core.tasks import words_of  # imports torch, which a table does not need

        return words_of(self.provenance.task)

    def sentences(self) -> Iterable[str | Finding]:
        """The findings of a type of result, those without a code as text: its answers."""
        return (answer.sentence(self.units_text) for answer in self.answers())

    @property
    def images_text(self) -> str:
        """The images that were measured: ``512 test images``."""
        return images_text(self.provenance.images, self.provenance.split)

    @property
    def units_text(self) -> str:
        """What the answers are measured over."""
        return self.images_text if self.provenance.images else "the images"

    def answers(self) -> tuple[Answer, ...]:
        """The numbers of this result that models are compared by.

        One for each estimate with a question: of a column, one for each of `answered` rows.
        """
        answers = (
            answer
            for name, info in self.estimates().items()
            if info.question
            for answer in self._answers_of(name, info)
        )
        words = self.in_words
        return tuple(
            replace(
                a,
                quantity=words(a.quantity),
                measure=words(a.measure),
                unit=words(a.unit),
                outcome=words(a.outcome),
            )
            for a in answers
        )

    def scalars(self) -> dict[str, float]:
        """The numbers that loggers show over a training, by identifier; the answers."""
        return {answer.id: answer.value for answer in self.answers()}

    def answered(self, name: str) -> np.ndarray:
        """Indices of the rows of an estimate that are answers, as its `row` says."""
        rows = np.arange(len(self))
        return rows[-1:] if self.estimates()[name].row == "last" else rows

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """Further fields of the `Answer` of an estimate, such as what it means."""
        return {}

    def _answers_of(self, name: str, info: EstimateInfo) -> Iterator[Answer]:
        value = getattr(self, name)
        key = f"{self.identifier}.{name}"
        if info.row == "mean over blocks" and value.by_unit is not None:
            average = info.reduce.average(value.by_unit)
            yield info.answer(key, average, [info.row], **self.reading(name, 0))
            return
        if not isinstance(value, np.ndarray):
            yield info.answer(key, value, **self.reading(name, 0))
            return
        for row in self.answered(name):
            names = [str(getattr(self, n)[row]) for n in self.row_names]
            yield info.answer(
                ":".join([key, *names]), value[row], names, **self.reading(name, int(row))
            )

    def save(self, path: Path | str) -> None:
        """Write one ``.npz`` file, whole or not at all.

        For an estimate ``x`` it holds the value, its ends ``x.low`` and ``x.high``, and the
        values by unit ``x.by_unit``.
        """
        if _TYPES.get(self.identifier) is not type(self):
            raise InputError(
                f"{type(self).__name__} must be a declared type of result. Put "
                "@result_type(identifier) above the class."
            )
        values = {f.name: getattr(self, f.name) for f in _content(self)}
        write_values(Path(path), self.identifier, values, self.provenance)

    def save_csv(self, path: Path | str) -> None:
        """Write the table as CSV with one header line, whole or not at all.

        The head of a column is its name, and its unit in parentheses. A text that a spreadsheet
        would evaluate as a formula begins with an apostrophe.
        """
        columns, infos = self.columns(), self.infos()
        units = {name: infos[_stem(name)].unit for name in columns if _stem(name) in infos}
        heads = {n: f"{n} ({units[n]})" if units.get(n) else n for n in columns}
        write_csv(Path(path), {heads[name]: column for name, column in columns.items()})

    @classmethod
    def load(cls: type[R], path: Path | str) -> R:
        """Read what `save` wrote. ``Result.load`` reads a result of any type."""
        declare_types()
        values = stored_values(Path(path))
        name = str(values.pop("__type__"))
        origin = provenance_of(values.pop("__provenance__"), Path(path))
        stored = _TYPES.get(name)
        if stored is None:
            raise UnknownTypeError(path, cls.__name__, name)
        if not issubclass(stored, cls):
            raise InputError(f"{path} must hold a {cls.__name__}, got a {name}")
        chosen = {f.name for f in fields(stored)} & values.keys()
        try:
            check_types(stored, values)
            content = {k: with_interval(k, values) for k in chosen}
            return stored(**content, provenance=origin)
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} does not hold a valid {name}: {error}") from error


def declare_types() -> None:
    """Import what declares types of results: the analyses and plug-ins, which are above."""
    homes = "analyses", "harmonize.replacement_search", "training.history", "one_image"
    for home in homes:
        import_all(f"visprism.{home}")
    load_plugins()


def result_types() -> dict[str, type[Result]]:
    """Every declared type of result by its identifier, including types of plug-ins."""
    declare_types()
    return dict(_TYPES)


@cache
def _text_columns(cls: type[Result]) -> frozenset[str]:
    hints = get_type_hints(cls, include_extras=True)
    return frozenset(name for name, hint in hints.items() if hint == Texts)


def _content(result: Result) -> list[Field]:
    return [f for f in fields(result) if f.name != "provenance"]


def _with_ends(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if isinstance(value, Estimated | Number):
        yield f"{name}_low", value.low
        yield f"{name}_high", value.high


def _stem(name: str) -> str:
    return name.removesuffix("_low").removesuffix("_high")


def _identical(a: Any, b: Any) -> bool:
    if isinstance(a, Estimated | Number) and isinstance(b, Estimated | Number):
        ends = all(_identical(getattr(a, end), getattr(b, end)) for end in ("low", "high"))
        return ends and _identical(np.asarray(a), np.asarray(b))
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
