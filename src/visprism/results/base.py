"""Results: what a measurement returns, a table of NumPy columns with units and provenance.

A result is a frozen dataclass declared with `result_type`. Its array fields are columns of one
length, one observation per row; its other fields are scalars that hold for every row. Each
field declares its label, unit and meaning with `column` or `scalar`; axis labels, table heads
and the reference are made from these declarations. A result holds no model, tensor or figure,
so that it can be saved, compared and drawn anywhere.
"""

import csv
import html
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.core.provenance import Provenance
from visprism.core.registry import load_plugins
from visprism.core.statistics import t_quantile
from visprism.results.answers import Answer
from visprism.results.findings import Finding
from visprism.results.notebook_table import columns_read_first, html_table
from visprism.results.stored_values import (
    UnknownTypeError,
    check_types,
    provenance_of,
    schema_number,
    stored_values,
)

Columns = dict[str, np.ndarray]
R = TypeVar("R", bound="Result")  # not Self: the tests check types function by function
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that a spreadsheet evaluates


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


def renaming(**names: str) -> Upgrade:
    """An upgrade of a schema that gives stored values their present names: former=present."""
    return lambda values: {names.get(name, name): value for name, value in values.items()}


def column(label: str, unit: str = "", meaning: str = "") -> Any:
    """A column of a result type: an array with one value per row."""
    return field(metadata={"column": ColumnInfo(label, unit, meaning)})


def scalar(  # noqa: ANN201 (a field)
    label: str,
    unit: str = "",
    meaning: str = "",
    *,
    default: Any = MISSING,
):
    """A field of a result type that holds for every row."""
    return field(default=default, metadata={"column": ColumnInfo(label, unit, meaning)})


@dataclass(frozen=True)
class _Stored:
    """How a type stands in files: its identifier, its schema, and how older files are read."""

    type: "type[Result]"
    schema: int
    upgrades: Mapping[int, Upgrade]


_TYPES: dict[str, _Stored] = {}  # by identifier, and by the class name that version 0.1 wrote


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(column, scalar)
)
def result_type(
    identifier: str,
    *,
    schema: int = 1,
    formerly: str | None = None,
    upgrades: Mapping[int, Upgrade] | None = None,
) -> Callable[[type[R]], type[R]]:
    """Declare a class as a type of result that `Result.load` knows.

    Args:
        identifier: written into files; it never changes, whatever the class is called.
        schema: number of the present set of columns, from 1; raise it when columns change.
        formerly: the class name in files of version 0.1 (schema 0); by default the present one.
        upgrades: for each older schema, a function from the stored values to those of the next
            schema; schemas without one need no change.
    """

    def register(cls: type[R]) -> type[R]:
        if identifier in _TYPES:
            raise InputError(f"identifier must be new, got {identifier!r}, which is registered")
        made = dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
        made.identifier = identifier
        stored = _Stored(made, schema, upgrades or {})
        _TYPES[identifier] = stored
        _TYPES.setdefault(formerly or cls.__name__, stored)
        return made

    return register


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """Base of all results. A type of result is declared with `result_type`.

    Two results are equal if they have the same type, columns and scalars, bit for bit, with NaN
    equal to NaN; where they come from (`provenance`) is not compared.
    """

    identifier: ClassVar[str] = ""
    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: v for name, v in arrays.items() if isinstance(v, np.ndarray)}
        deep = [name for name, v in arrays.items() if v.ndim != 1]
        if deep:
            raise ValueError(
                f"columns of {type(self).__name__} must have one axis, got "
                f"{deep[0]} of shape {arrays[deep[0]].shape}"
            )
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
        """A table of the first rows with units, and the provenance folded away.

        A wide table has only the columns that are read first; `to_pandas` has all of them.
        """
        headings = {name: info.heading for name, info in self.infos().items()}
        columns = self.columns()
        scalars = {n for n in headings if not isinstance(getattr(self, n), np.ndarray)}
        names = columns_read_first(
            headings, columns, scalars, value=getattr(self, "value_name", "")
        )
        source = html.escape(self.provenance.sentence())
        return (
            f"<p><b>{html.escape(type(self).__name__)}</b></p>"
            f"{html_table(headings, columns, names)}"
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

    def columns(self) -> Columns:
        """The table by column; scalars are repeated in every row."""
        n = len(self)
        return {f.name: np.broadcast_to(getattr(self, f.name), n) for f in _content(self)}

    def to_pandas(self) -> Any:
        """The table as a data frame; units and provenance stand in its `attrs`."""
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise InputError(
                "to_pandas needs pandas, which is not installed. Install it, or use columns()."
            ) from error
        frame = pandas.DataFrame({name: np.array(c) for name, c in self.columns().items()})
        frame.attrs = {
            "units": {name: info.unit for name, info in self.infos().items()},
            "provenance": asdict(self.provenance),
        }
        return frame

    def select(self: R, rows: np.ndarray) -> R:
        """The same result with the rows that a mask or an index selects."""
        columns = {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        try:
            selected = {name: values[rows] for name, values in columns.items()}
        except IndexError as error:
            raise InputError(
                f"rows must be a mask or indices of {len(self)} rows, got {rows.size} values "
                f"of type {rows.dtype}"
            ) from error
        return replace(self, **selected)

    def with_provenance(self: R, **changes: Any) -> R:
        """The same result with changes to its provenance: ``with_provenance(model="vit")``."""
        return replace(self, provenance=replace(self.provenance, **changes))

    def intervals_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 95% intervals of a column; NaN where the result has none.

        They are the columns ``<name>_low`` and ``<name>_high``, or else the values ± the
        standard errors, ``<name>_error``, times Student's t quantile for the number of images.

        Args:
            name: of the column.
        """
        self._check_column(name)
        values = np.asarray(getattr(self, name), dtype=float)
        missing = np.full(len(values), np.nan)
        if hasattr(self, f"{name}_low"):
            return getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
        errors = np.asarray(getattr(self, f"{name}_error", missing), dtype=float)
        margins = t_quantile(self.provenance.images) * errors
        return values - margins, values + margins

    def _check_column(self, name: str) -> None:
        """Require the name of a column or scalar, or of an attribute with numbers."""
        if name.startswith("_") or not hasattr(self, name):
            raise InputError(f"name must be one of {', '.join(self.infos())}, got {name!r}")

    def has_figure(self, **options: Any) -> bool:
        """Whether a figure with these options shows anything of this result."""
        return True

    def findings(self) -> tuple[Finding, ...]:
        """What the result says, one sentence per quantity, with values and intervals."""
        return ()

    def answers(self) -> tuple[Answer, ...]:
        """The numbers of this result that models are compared by."""
        return ()

    def save(self, path: Path | str) -> None:
        """Write one ``.npz`` file, whole or not at all."""
        stored = _TYPES.get(self.identifier)
        if stored is None or stored.type is not type(self):
            raise InputError(
                f"{type(self).__name__} must be a declared type of result. Put "
                "@result_type(identifier) above the class."
            )
        values = {f.name: getattr(self, f.name) for f in _content(self)}
        # Through an open file, for NumPy would add a suffix to a bare path.
        with atomic_write(Path(path)) as scratch, scratch.open("wb") as file:
            np.savez(
                file,
                **values,
                __type__=self.identifier,
                __schema__=stored.schema,
                __provenance__=json.dumps(asdict(self.provenance)),
            )

    def save_csv(self, path: Path | str) -> None:
        """Write the table as CSV with one header line, whole or not at all.

        A text that a spreadsheet would evaluate as a formula begins with an apostrophe.
        """
        columns = self.columns()
        with atomic_write(Path(path)) as scratch, scratch.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in zip(*(c.tolist() for c in columns.values()), strict=True):
                writer.writerow([_harmless(value) for value in row])

    @classmethod
    def load(cls: type[R], path: Path | str) -> R:
        """Read what `save` wrote, also in an earlier version.

        ``Result.load`` reads a result of any type.
        """
        import_module("visprism.results")  # declares every built-in type
        load_plugins()
        values = stored_values(Path(path))
        name, schema = (
            str(values.pop("__type__")),
            schema_number(values.pop("__schema__", 0), Path(path)),
        )
        origin = provenance_of(values.pop("__provenance__"), Path(path))
        stored = _TYPES.get(name)
        if stored is None:
            raise UnknownTypeError(path, cls.__name__, name)
        if not issubclass(stored.type, cls):
            raise InputError(f"{path} must hold a {cls.__name__}, got a {name}")
        if schema > stored.schema:
            raise InputError(
                f"{path} has schema {schema} of {name}, and this version reads up to "
                f"{stored.schema}. Update visprism."
            )
        for step in range(schema, stored.schema):
            values = _upgraded(stored, step, values, path)
        required = {f.name for f in fields(stored.type) if f.default is MISSING} - {
            "provenance"
        }
        missing = sorted(required - values.keys())
        if missing:
            raise InputError(f"{path} lacks columns of a {name}: {', '.join(missing)}")
        chosen = {f.name for f in fields(stored.type)} & values.keys()
        try:
            check_types(stored.type, values)
            return stored.type(**{k: values[k] for k in chosen}, provenance=origin)
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} does not hold a valid {name}: {error}") from error


def result_types() -> dict[str, type[Result]]:
    """Every registered type of result by its identifier, also of plug-ins."""
    import_module("visprism.results")
    load_plugins()
    return {key: stored.type for key, stored in _TYPES.items() if key == stored.type.identifier}


def _content(result: Result) -> list[Field]:
    return [f for f in fields(result) if f.name != "provenance"]


def _identical(a: object, b: object) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def _upgraded(
    stored: _Stored, schema: int, values: dict[str, Any], path: Path | str
) -> dict[str, Any]:
    """The values of one schema as those of the next."""
    try:
        return stored.upgrades.get(schema, lambda same: same)(values)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} does not hold a valid {stored.type.__name__} of schema {schema}: {error}"
        ) from error


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
