"""Training checkpoints on disk: the last one and the one before it, each with a checksum."""

import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import IO, Any

import torch

from visprism.core.errors import InputError
from visprism.core.files import atomic_write

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"

# A file begins with a mark and a digest of the rest: torch does not notice damaged values.
_MARK = b"visprism state 1"
_DIGEST = 32  # bytes

_log = logging.getLogger(__name__)


def write_checkpoint(folder: Path, checkpoint: Mapping[str, Any]) -> None:
    """Write ``last.ckpt``, whole or not at all; the file before it becomes ``previous.ckpt``.

    If that file is damaged, ``previous.ckpt`` stays until the new one is written.
    """
    path = folder / LAST
    try:
        with atomic_write(path) as scratch:
            with scratch.open("w+b") as file:
                file.write(_MARK + bytes(_DIGEST))
                torch.save(dict(checkpoint), file)
                digest = _digest(file)
                file.seek(len(_MARK))
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())  # a crash of the machine could leave an empty file
            if path.exists() and _fault(path) is None:
                path.replace(folder / PREVIOUS)
    except (OSError, RuntimeError) as error:  # torch hides what the file raises
        reason = error.strerror if isinstance(error, OSError) else "the disk may be full"
        raise InputError(
            f"the training checkpoint of step {checkpoint['step']} could not be written to "
            f"{folder} ({reason}). Free some space or remove the cause, and resume."
        ) from error


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The last training checkpoint, or the one before if it is damaged; None for a new run."""
    paths = [folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()]
    for path in paths:
        fault = _fault(path)
        if fault is None:
            with path.open("rb") as file, torch.serialization.safe_globals([defaultdict]):
                file.seek(len(_MARK) + _DIGEST)
                return torch.load(file, map_location="cpu", weights_only=True)
        more = "" if path == paths[-1] else f"; resuming from {paths[-1].name}"
        _log.warning("%s %s and was not used%s", path, fault, more)
    if paths:
        raise InputError(
            f"no training checkpoint in {folder} is valid "
            f"({', '.join(p.name for p in paths)}). Remove them to start again, or name "
            "another folder."
        )
    return None


def valid_checkpoint(folder: Path) -> Path | None:
    """The file that `read_checkpoint` would read, or None."""
    paths = (folder / LAST, folder / PREVIOUS)
    return next((path for path in paths if path.exists() and _fault(path) is None), None)


def _fault(path: Path) -> str | None:
    """Why a training checkpoint is not used; None for a valid one."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MARK)) != _MARK:
                return "is not a training checkpoint of visprism"
            valid = file.read(_DIGEST) == _digest(file)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if valid else "is damaged (its checksum does not match)"


def _digest(file: IO[bytes]) -> bytes:
    """A digest of all that follows the head of a file."""
    file.seek(len(_MARK) + _DIGEST)
    return file_digest(file, lambda: blake2b(digest_size=_DIGEST)).digest()  # pyrefly: ignore
