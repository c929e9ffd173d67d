"""Resuming: the state of a run on disk, from which it ends as if it had never stopped."""

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
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.data import Feed
from visprism.data.fingerprint import fingerprint
from visprism.training.engine import Engine
from visprism.training.settings import flat

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"

# A file begins with what it is and a digest of the rest: torch does not look at damage within.
_MARK = b"visprism state 1"
_DIGEST = 32  # bytes
_CHUNK = 2**20  # bytes

_log = logging.getLogger(__name__)


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write ``last.ckpt``, whole or not at all; what it was becomes ``previous.ckpt``.

    A damaged one does not: what it was before is then the last good state until this one is.

    Raises:
        InputError: if it cannot be written, as on a full disk; the last good one stays.
    """
    path = folder / LAST
    target = None
    try:
        with atomic_write(path) as scratch:
            with scratch.open("wb") as file:
                file.write(_MARK + bytes(_DIGEST))
                target = _Digesting(file)
                torch.save(dict(state), cast(IO[bytes], target))
                file.seek(len(_MARK))
                file.write(target.digest.digest())
                file.flush()
                os.fsync(file.fileno())  # or a crash of the machine could leave an empty file
            if path.exists() and _fault(path) is None:
                path.replace(folder / PREVIOUS)
    except (OSError, RuntimeError) as error:  # torch hides what the file raises
        cause = error if isinstance(error, OSError) else target and target.failure
        if cause is None:
            raise
        kept = good_state(folder)
        found = f"and go on from {kept.name} with --resume" if kept else "and begin anew"
        full = cause.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
        more = ": the disk is full, or the file too large for it" if full else ""
        raise InputError(
            f"the state after step {state['step']} could not be written whole to {folder} "
            f"({cause.strerror}{more}); {'make room' if full else 'mend that'}, {found}"
        ) from error


def read_state(folder: Path) -> dict[str, Any] | None:
    """What `write_state` wrote, or what it was before if that is damaged; None of a new run.

    Raises:
        InputError: if there are files, and none can be read.
    """
    found = [folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()]
    for path in found:
        fault = _fault(path)
        if fault is None:
            with path.open("rb") as file, torch.serialization.safe_globals([defaultdict]):
                file.seek(len(_MARK) + _DIGEST)
                return torch.load(file, map_location="cpu", weights_only=True)
        more = "" if path == found[-1] else f"; going on from {found[-1].name}"
        _log.warning("%s %s and was not used%s", path, fault, more)
    if found:
        raise InputError(
            f"no state in {folder} can be read ({', '.join(p.name for p in found)}); remove "
            "them to begin anew, or name another folder"
        )
    return None


def cleared(folder: Path) -> str | None:
    """Make the folder, and remove what a process that was killed had begun to write.

    Returns why no state can be written there, or None.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for scratch in (*folder.glob(".*.tmp*"), *folder.glob("*/.*.tmp*")):
            scratch.unlink(missing_ok=True)
        with atomic_write(folder / "tried"):
            pass
        (folder / "tried").unlink()
    except OSError as error:
        return f"{folder} cannot be written to ({error.strerror}); name another folder"
    odd = next((p for p in (folder / LAST, folder / PREVIOUS) if p.is_dir()), None)
    return f"{odd} is a folder, and the state goes there; move it away" if odd else None


def good_state(folder: Path) -> Path | None:
    """The file that `read_state` would read, if there is one."""
    paths = (folder / LAST, folder / PREVIOUS)
    return next((path for path in paths if path.exists() and _fault(path) is None), None)


def _fault(path: Path) -> str | None:
    """Why a file is not used; None of a whole state."""
    digest = blake2b(digest_size=_DIGEST)
    try:
        with path.open("rb") as file:
            if file.read(len(_MARK)) != _MARK:
                return "is no state that visprism has written"
            expected = file.read(_DIGEST)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    whole = digest.digest() == expected
    return None if whole else "is damaged or incomplete (its checksum is another)"


class _Digesting(io.RawIOBase):
    """Passes on to a file what is written, keeps its digest, and what the file raises."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failure: OSError | None = None
        self.digest = blake2b(digest_size=_DIGEST)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 (a buffer, for which 3.11 has no name)
        """Write it all."""
        try:
            self._file.write(data)
        except OSError as error:
            self.failure = error
            raise
        self.digest.update(data)
        return len(data)


def identity(engine: Engine, train: Feed, named: Mapping[str, str]) -> dict[str, Any]:
    """What must be the same for a run to go on: recipe, model, teacher and data, by name.

    Of the data, digests of all classes and of some images; of the teacher, one of its weights.
    """
    tensors: dict[str, Tensor] = engine.model.state_dict()
    teacher = engine.teacher
    taught = {} if teacher is None else {"weights": fingerprint(teacher.state_dict().values())}
    data = {"images": train.images, "number of classes": train.num_classes}
    return {
        "the run's": dict(named),
        "recipe": flat(engine.recipe),
        "data's": data | train.fingerprints,
        "teacher's": taught,
        "model": {name: list(tensor.shape) for name, tensor in tensors.items()},
    }


def check_same(state: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """The run in the folder is this one.

    Raises:
        InputError: if recipe, model or data differ; the differences are named.
    """
    differences = [
        f"{kind} {name} {then.get(name, 'none')} there, {own.get(name, 'none')} here"
        for kind, own in now.items()
        for then in [state["identity"].get(kind, {})]
        for name in dict.fromkeys((*then, *own))
        if then.get(name) != own.get(name)
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{folder} holds another run: {'; '.join(differences[:3])}{more}; resume it with "
            "what it was begun with, or name another folder"
        )
