"""Files that are written whole or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
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
