"""Results: what a measurement found, as a tidy table.

A result is a frozen dataclass. Its array fields are columns of one length, one observation per
row; its other fields are scalars that hold for every row. It keeps no model, tensor or figure,
so it can be saved, compared and drawn anywhere, and it carries its `Provenance`.
"""

import csv
import json
import os
import platform
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from zipfile import BadZipFile

import numpy as np

from visprism.archives import check_uncompressed
from visprism.errors import InputError

_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, EOFError)
_DAMAGED += (MemoryError, RecursionError, BadZipFile)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a spreadsheet knows one
Columns = dict[str, np.ndarray]
R = TypeVar("R", bound="Result")  # not Self: the tests check types function by function


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from: everything that is needed to measure it again."""

    model: str = ""  # as the user named it
    data: str = ""  # as the user named it, with its split
    images: int = 0  # how many were measured
    image_shape: tuple[int, ...] = ()  # (channels, height, width)
    batch_size: int = 0
    preprocessing: str = ""
    protocol: str = "default"  # "default", or "paper" for what the reference's code does
    precision: str = "fp32"
    device: str = "cpu"
    processes: int = 1
    seed: int = 0
    command: str = ""
    created: str = ""  # ISO date
    visprism: str = field(default_factory=lambda: version("visprism"))
    torch: str = field(default_factory=lambda: version("torch"))
    python: str = field(default_factory=platform.python_version)

    def sentence(self) -> str:
        """The protocol in one line, as it stands under every figure."""
        shape = "x".join(map(str, self.image_shape))
        parts = [
            self.model,
            f"{self.images} images of {self.data or 'unnamed data'}"
            if self.images
            else self.data,
            shape,
            self.preprocessing,
            f"protocol: {self.protocol}",
            f"{self.precision} on {self.device}",
            f"visprism {self.visprism}, torch {self.torch}",
        ]
        return " · ".join(part for part in parts if part)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place if the body succeeds.

    A reader sees the old file or the new one, never a part, also after a crash or Ctrl-C. Its
    mode is that of any new file, whatever the body makes of it.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        scratch.touch()
        mode = stat.S_IMODE(scratch.stat().st_mode)  # as the user's umask has it
        yield scratch
        scratch.chmod(mode)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Base of all results. Subclasses are frozen dataclasses and override nothing."""

    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        lengths = {k: len(v) for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of {type(self).__name__} differ in length: {lengths}")

    def __len__(self) -> int:
        """Number of rows."""
        return max(
            (len(v) for v in vars(self).values() if isinstance(v, np.ndarray)), default=1
        )

    def columns(self) -> Columns:
        """The table by column, ready for ``pandas.DataFrame`` or ``polars.DataFrame``."""
        n = len(self)
        return {
            f.name: np.broadcast_to(getattr(self, f.name), n)
            for f in fields(self)
            if f.name != "provenance"
        }

    def rows(self: R, keep: np.ndarray) -> R:
        """The same result with the rows that `keep`, a mask or index, selects."""
        columns = {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **{name: column[keep] for name, column in columns.items()})

    def from_(self: R, **facts: Any) -> R:  # noqa: ANN401 (fields of Provenance)
        """The same result with these facts in its provenance: ``result.from_(model="vit")``."""
        return replace(self, provenance=replace(self.provenance, **facts))

    def save(self, path: Path | str) -> None:
        """Write one ``.npz`` file, whole or not at all."""
        values = {k: v for k, v in vars(self).items() if k != "provenance"}
        # Through an open file, for NumPy would add a suffix to a bare path.
        with written_whole(Path(path)) as scratch, scratch.open("wb") as file:
            np.savez(
                file,
                **values,
                __type__=type(self).__name__,
                __provenance__=json.dumps(asdict(self.provenance)),
            )

    def save_csv(self, path: Path | str) -> None:
        """Write the table as CSV with one header line, whole or not at all.

        Text that a spreadsheet would take for a formula gets an apostrophe in front.
        """
        columns = self.columns()
        with written_whole(Path(path)) as scratch, scratch.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            cells = (map(_cell, column.tolist()) for column in columns.values())
            writer.writerows(zip(*cells, strict=True))

    @classmethod
    def load(cls: type[R], path: Path | str) -> R:
        """Read what `save` wrote; ``Result.load`` reads a result of any type.

        Raises:
            InputError: if the file holds a result of a type that is not `cls`, or no result, or
                values of other types than a result has.
        """
        check_uncompressed(Path(path))
        try:
            with np.load(path, allow_pickle=False) as stored:
                name = str(stored["__type__"])
                kind = next((k for k in _family(cls) if k.__name__ == name), None)
                if kind is None:
                    raise InputError(f"{path} holds a {name}, not a {cls.__name__}")
                facts = json.loads(str(stored["__provenance__"]))
                facts["image_shape"] = tuple(facts["image_shape"])
                names = [f.name for f in fields(kind) if f.name != "provenance"]
                values = {name: stored[name] for name in names}
            # A stored scalar comes back as an array without axes.
            plain = {k: v if v.ndim else v.item() for k, v in values.items()}
            _check_types(kind, plain)
            _check_types(Provenance, facts)
            return kind(**plain, provenance=Provenance(**facts))
        except InputError:
            raise
        except _DAMAGED as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{path} was refused: it is no result ({reason})") from error


def _check_types(kind: type, values: Mapping[str, Any]) -> None:
    """Check that scalar fields hold scalars of their type.

    Raises:
        TypeError: if one does not.
    """
    for name, hint in get_type_hints(kind).items():
        if hint in (str, int, float, bool) and name in values:
            types = (int, float) if hint is float else (hint,)
            if type(values[name]) not in types:
                raise TypeError(f"{name} must be a {hint.__name__}, got {values[name]!r:.80}")


def _cell(value: object) -> object:
    """A value for a cell of CSV; see OWASP, CSV injection."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _family(cls: type[R]) -> Iterator[type[R]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)
