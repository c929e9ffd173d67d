"""Locks: one run at a time writes to a folder."""

import os
from pathlib import Path

from visprism.core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def lock_folder(folder: Path, name: str) -> int | None:
    """A descriptor that locks a folder until it is closed, or its process ends.

    None where there are no locks: on Windows, and on some file systems.

    Args:
        folder: an existing folder.
        name: of the argument, for the error.
    """
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InputError(
            f"{name} must not be in use, and another run writes to {folder}. Wait for its end, "
            "or choose another folder."
        ) from error
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor
