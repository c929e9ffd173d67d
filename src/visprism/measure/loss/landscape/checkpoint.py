"""Checkpoints of landscapes: files of complete points, from which a run resumes."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.files import atomic_write, check_uncompressed
from visprism.core.processes import gather, rank
from visprism.core.provenance import bytes_of

Rows = dict[int, tuple[float, ...]]  # by the number of the point

_DAMAGED = (ValueError, TypeError, LookupError, EOFError, MemoryError, BadZipFile)
_SECONDS = 2.0  # at least, from one writing to the next


def landscape_fingerprint(tensors: Iterable[Tensor], *settings: object) -> str:
    """A hash of tensors and settings."""
    digest = blake2b(repr(settings).encode(), digest_size=16)
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


def read_partial(path: Path, prints: Mapping[str, str]) -> Rows:
    """The points that earlier runs, with any number of processes, have saved.

    Args:
        path: the `resume` of those runs.
        prints: fingerprints that must be equal.
    """
    rows: Rows = {}
    for file in sorted(path.parent.glob(f"{_escaped(path.name)}.[0-9]*")):
        check_uncompressed(file)
        try:
            with np.load(file, allow_pickle=False) as stored:
                differing = [what for what in prints if str(stored[what]) != prints[what]]
                saved_rows = dict(
                    zip(stored["number"].tolist(), stored["row"].tolist(), strict=True)
                )
        except (OSError, *_DAMAGED) as error:
            raise InputError(
                f"{file} must be a partial landscape, got no archive of its arrays. Delete it, "
                "or choose another file."
            ) from error
        if differing:
            raise InputError(
                f"{file} is of a landscape with other {' and '.join(differing)}. Resume with "
                "the same arguments, delete it, or choose another file."
            )
        rows |= {number: tuple(row) for number, row in saved_rows.items()}
    gather(None)  # no process writes before all have read
    return rows


@contextmanager
def saved(
    path: Path | None, prints: Mapping[str, str], read: Rows, rows: Rows
) -> Iterator[Callable[[], None]]:
    """Inside, a call saves the points of this process, at most every two seconds.

    On exit, also after Ctrl-C, all points are saved, including those that were `read`, since
    the file replaces the one that held them.
    """
    last = time.monotonic()

    def save() -> None:
        nonlocal last
        if path is not None and time.monotonic() - last > _SECONDS:
            _write(path, prints, read | rows)
            last = time.monotonic()

    try:
        yield save
    finally:
        if path is not None and rows:
            _write(path, prints, read | rows)


def discard_partial(path: Path) -> None:
    """Delete the files of interrupted runs, when the landscape is complete."""
    for file in path.parent.glob(f"{_escaped(path.name)}.[0-9]*"):
        file.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _write(path: Path, prints: Mapping[str, str], rows: Rows) -> None:
    """Write the file of this process atomically."""
    file = path.with_name(f"{path.name}.{rank()}")
    with atomic_write(file) as scratch, scratch.open("wb") as opened:
        np.savez(
            opened,
            number=np.array(list(rows), dtype=np.int64),
            row=np.array(list(rows.values()), dtype=np.float64),
            **dict(prints),  # pyrefly: ignore
        )
