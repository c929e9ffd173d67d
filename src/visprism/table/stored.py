"""Files of results, whatever the type of result: written, and read and checked."""

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from visprism.core.errors import InputError
from visprism.core.files import atomic_write, check_uncompressed
from visprism.core.provenance import Provenance
from visprism.estimates.estimated import Estimated, Number

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that a spreadsheet evaluates


class UnknownTypeError(InputError):
    """A file holds a result of a type that no installed package declares."""

    def __init__(self, path: Path | str, wanted: str, identifier: str) -> None:
        self.reason = f"{identifier:.80} is a result of a plug-in that is not installed"
        super().__init__(f"{path} must hold a {wanted}, got a {identifier:.80}. {self.reason}.")


def stored_values(path: Path) -> dict[str, Any]:
    """Arrays and scalars of a file; an array without axes comes back as a scalar."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} must be a file that Result.save wrote")  # no pipe, no folder
    try:
        check_uncompressed(path)  # which a small file could expand beyond all memory
        with np.load(path, allow_pickle=False) as stored:
            values = {name: stored[name] for name in stored.files}
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(
            f"path must be a file that Result.save wrote, got {path}, which does not exist"
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except Exception as error:  # zipfile, zlib and NumPy raise many types
        # NumPy's sentence advises loading objects, which would run code of the file.
        pickled = "allow_pickle" in str(error)
        reason = "it is no NPZ file of plain arrays" if pickled else str(error)
        raise InputError(f"{path} cannot be read as a result ({reason})") from error
    heads = [values.get(name) for name in ("__type__", "__provenance__")]
    if any(head is None or head.ndim or head.dtype.kind != "U" for head in heads):
        raise InputError(f"{path} must be a file that Result.save wrote")
    return {k: v if v.ndim else v.item() for k, v in values.items()}


def provenance_of(text: Any, path: Path) -> Provenance:
    """The provenance of a file from its JSON; unknown entries are dropped."""
    try:
        return msgspec.json.decode(str(text), type=Provenance)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} does not hold a valid provenance: {error}") from error


def check_types(cls: type, values: Mapping[str, Any]) -> None:
    """Check which fields are columns, and the types of scalars."""
    for name, hint in get_type_hints(cls).items():
        if name not in values:
            continue
        value = values[name]
        hint = {Estimated: np.ndarray, Number: float}.get(hint, hint)
        if hint is np.ndarray and not isinstance(value, np.ndarray):
            raise TypeError(f"{name} must be a column, got {value!r:.80}")
        if hint in (str, int, float, bool):
            types = (int, float) if hint is float else (hint,)
            if type(value) not in types:
                got = "a column" if isinstance(value, np.ndarray) else f"{value!r:.80}"
                raise TypeError(f"{name} must be a {hint.__name__}, got {got}")


def write_values(
    path: Path, identifier: str, values: Mapping[str, Any], origin: Provenance
) -> None:
    """Write columns and scalars; of an estimate also its ends and its values by unit."""
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in values.items()}
    for name, value in values.items():
        if isinstance(value, Estimated | Number):
            parts = {
                "low": value.low,
                "high": value.high,
                "by_unit": value.by_unit,
                "missing": value.missing or None,
            }
            arrays |= {f"{name}.{k}": np.asarray(v) for k, v in parts.items() if v is not None}
    # Through an open file, for NumPy would add a suffix to a bare path.
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        np.savez(
            file,
            **arrays,
            __type__=np.asarray(identifier),
            __provenance__=np.asarray(json.dumps(asdict(origin))),
        )


def with_interval(name: str, values: Mapping[str, Any]) -> Any:
    """A stored value with its interval and values by unit, where the file holds them."""
    value = values[name]
    if f"{name}.low" not in values:
        return value
    made = Estimated if isinstance(value, np.ndarray) else Number
    low, high = (values.get(f"{name}.{end}") for end in ("low", "high"))
    by_unit = values.get(f"{name}.by_unit")
    if low is None or high is None or not np.shape(low) == np.shape(high) == np.shape(value):
        raise ValueError(f"both ends of {name} must be there, and have its shape")
    if by_unit is not None and (
        np.shape(by_unit)[1:] != np.shape(value) or by_unit.dtype.kind not in "biuf"
    ):
        raise ValueError(f"{name}.by_unit must be numbers, with a column for each row")
    return made(value, low, high, by_unit, str(values.get(f"{name}.missing", "")))


def write_csv(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write columns by their heads; no spreadsheet evaluates a text as a formula."""
    with (
        atomic_write(path) as scratch,
        scratch.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*(c.tolist() for c in columns.values()), strict=True):
            writer.writerow(
                f"'{x}" if isinstance(x, str) and x.startswith(_FORMULA) else x for x in row
            )
