"""Files that are written whole or not at all."""

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from visprism.core.errors import InputError


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


def slug(text: str) -> str:
    """The text with only characters that a file's name can have.

    Example:
        >>> slug("timm:vit_tiny?img_size=32")
        'timm-vit_tiny-img_size-32'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "model"


def write_text(path: Path, text: str) -> None:
    """Write a text file with UNIX line ends, whole or not at all."""
    with atomic_write(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """A temporary folder whose files go to `path` together, if the body succeeds.

    After a failure or Ctrl-C everything under `path` is as it was.

    Raises:
        InputError: at once, if nothing can be written to `path`.
    """
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            scratch = TemporaryDirectory(prefix=".visprism-", dir=path)
        except OSError as error:
            raise InputError(
                f"out must be a folder that can be written to, got {path} ({error.strerror})"
            ) from error
        with scratch as name:
            yield Path(name)
            _move(Path(name), path)
    finally:
        for folder in created:
            with suppress(OSError):  # not empty, as after success
                folder.rmdir()


def _move(scratch: Path, path: Path) -> None:
    """Move files in the order of their names; an index in the top folder goes last."""
    files = [p.relative_to(scratch) for p in scratch.rglob("*") if p.is_file()]
    for file in sorted(files, key=lambda f: (-len(f.parts), f)):
        target = path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        (scratch / file).replace(target)


_ZIP = b"PK\x03\x04"  # how an archive begins


def check_uncompressed(path: Path) -> None:
    """Check that an archive holds no more bytes than the file has; other files pass.

    NumPy's ``savez`` and ``torch.save`` do not compress. An archive that does, or whose members
    overlap, can grow a thousandfold when it is read.

    Raises:
        InputError: if the archive is damaged or larger than its file.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{path} was refused: it is not an archive ({error})") from error
    compressed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
    if compressed or sum(m.file_size for m in members) > path.stat().st_size:
        raise InputError(
            f"{path} was refused: it must be an archive without compression. Save it again by "
            "np.savez or torch.save."
        )
