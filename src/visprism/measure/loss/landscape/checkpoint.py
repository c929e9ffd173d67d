"""Partial landscapes: the points that are measured already, in files, for a run to go on."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from visprism.core.archives import check_uncompressed
from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.core.processes import gather, rank

Rows = dict[int, tuple[float, ...]]  # by the number of the point

_DAMAGED = (ValueError, TypeError, LookupError, EOFError, MemoryError, BadZipFile)
_SECONDS = 2.0  # at least, from one writing to the next


def fingerprint(tensors: Iterable[Tensor], *facts: object) -> str:
    """A short text that differs where a number or a fact differs."""
    digest = blake2b(repr(facts).encode(), digest_size=16)
    for tensor in tensors:
        raw = tensor.detach().cpu().contiguous()
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(raw.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_partial(path: Path, prints: Mapping[str, str]) -> Rows:
    """The points that earlier runs, of however many processes, have left.

    Args:
        path: as it was given to them.
        prints: a fingerprint of each thing that must be the same.

    Raises:
        InputError: if a file is of another landscape, or damaged.
    """
    rows: Rows = {}
    for file in sorted(path.parent.glob(f"{_escaped(path.name)}.[0-9]*")):
        check_uncompressed(file)
        try:
            with np.load(file, allow_pickle=False) as stored:
                other = [what for what in prints if str(stored[what]) != prints[what]]
                found = dict(
                    zip(stored["number"].tolist(), stored["row"].tolist(), strict=True)
                )
        except (OSError, *_DAMAGED) as error:
            raise InputError(
                f"{file} holds no part of a landscape ({error}); delete it, or name another"
            ) from error
        if other:
            raise InputError(
                f"{file} holds a part of another landscape (another {' and '.join(other)}); "
                "go on with what it was begun with, delete it, or name another file"
            )
        rows |= {number: tuple(row) for number, row in found.items()}
    gather(None)  # nobody writes before all have read
    return rows


@contextmanager
def saved(
    path: Path | None, prints: Mapping[str, str], read: Rows, rows: Rows
) -> Iterator[Callable[[], None]]:
    """Inside, a call writes what this process has measured, if the last is seconds ago.

    At the end, also after Ctrl-C, everything is written. The file holds what was `read` too,
    since it takes the place of one that did.
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
    """Delete what runs have left: their landscape is complete, and saved."""
    for file in path.parent.glob(f"{_escaped(path.name)}.[0-9]*"):
        file.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _write(path: Path, prints: Mapping[str, str], rows: Rows) -> None:
    """Write the file of this process, whole or not at all."""
    file = path.with_name(f"{path.name}.{rank()}")
    with atomic_write(file) as scratch, scratch.open("wb") as opened:
        np.savez(
            opened,
            number=np.array(list(rows), dtype=np.int64),
            row=np.array(list(rows.values()), dtype=np.float64),
            **dict(prints),  # pyrefly: ignore
        )
