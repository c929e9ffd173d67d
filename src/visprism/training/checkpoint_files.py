"""Training checkpoints on disk: the last one and the one before it, each with a checksum."""

import errno
import io
import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, cast

import torch

from visprism.core.errors import InputError
from visprism.core.files import atomic_write, remove_leftovers

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"

# A file begins with a mark and a digest of the rest: torch does not notice damaged values.
_MARK = b"visprism state 1"
_DIGEST = 32  # bytes
_CHUNK = 2**20  # bytes

_log = logging.getLogger(__name__)


def write_checkpoint(folder: Path, checkpoint: Mapping[str, Any]) -> None:
    """Write ``last.ckpt``, whole or not at all; the file before it becomes ``previous.ckpt``.

    If that file is damaged, ``previous.ckpt`` stays until the new one is written.
    """
    path = folder / LAST
    target = None
    try:
        with atomic_write(path) as scratch:
            with scratch.open("wb") as file:
                file.write(_MARK + bytes(_DIGEST))
                target = _Digesting(file)
                torch.save(dict(checkpoint), cast(IO[bytes], target))
                file.seek(len(_MARK))
                file.write(target.digest.digest())
                file.flush()
                os.fsync(file.fileno())  # a crash of the machine could leave an empty file
            if path.exists() and _fault(path) is None:
                path.replace(folder / PREVIOUS)
    except (OSError, RuntimeError) as error:  # torch hides what the file raises
        cause = error if isinstance(error, OSError) else target and target.failure
        if cause is None:
            raise
        valid = valid_checkpoint(folder)
        remedy = f"resume from {valid.name}" if valid else "start again"
        full = cause.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
        reason = f"{cause.strerror}: the disk is full" if full else cause.strerror
        raise InputError(
            f"the training checkpoint of step {checkpoint['step']} could not be written to "
            f"{folder} ({reason}). {'Free some space' if full else 'Remove the cause'}, and "
            f"{remedy}."
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


def prepare_folder(folder: Path) -> str | None:
    """Create the folder, and remove the unfinished files of a process that was killed.

    Returns the reason why no checkpoint can be written there, or None.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        with atomic_write(folder / "write-test"):
            pass
        (folder / "write-test").unlink()
    except OSError as error:
        return f"{folder} cannot be written to ({error.strerror}). Name another folder."
    misplaced = next((p for p in (folder / LAST, folder / PREVIOUS) if p.is_dir()), None)
    return f"{misplaced} must not be a folder. Move it away." if misplaced else None


def valid_checkpoint(folder: Path) -> Path | None:
    """The file that `read_checkpoint` would read, or None."""
    paths = (folder / LAST, folder / PREVIOUS)
    return next((path for path in paths if path.exists() and _fault(path) is None), None)


def _fault(path: Path) -> str | None:
    """Why a training checkpoint is not used; None for a valid one."""
    digest = blake2b(digest_size=_DIGEST)
    try:
        with path.open("rb") as file:
            if file.read(len(_MARK)) != _MARK:
                return "is not a training checkpoint of visprism"
            expected = file.read(_DIGEST)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if digest.digest() == expected else "is damaged (its checksum does not match)"


class _Digesting(io.RawIOBase):
    """Writes to a file with a digest of the content, and stores the error of the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failure: OSError | None = None
        self.digest = blake2b(digest_size=_DIGEST)

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Write all of the data."""
        try:
            self._file.write(data)
        except OSError as error:
            self.failure = error
            raise
        self.digest.update(data)
        return len(data)
