"""Files that are written whole or not at all."""

import errno
import os
import platform
import re
import shutil
import stat
import zipfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from visprism.core.errors import InputError, OutputError

FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # errors of a disk, or a quota, that is full


def exists(path: Path) -> bool:
    """Whether there is a file or folder; none has a name too long or with a null character."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether there is a file, as `exists`."""
    return exists(path) and path.is_file()


def check_named(path: Path) -> None:
    """Require a path to write to that ends in a name."""
    if not path.name:
        raise InputError(f"a path to write to must end in the name of a file, got '{path}'")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place if the body succeeds.

    A reader sees the old file or the new one, never a part, also after a crash or Ctrl-C. Its
    mode is that of any new file, whatever the body makes of it.

    Raises:
        InputError: if the path does not end in a name.
        OutputError: if the file cannot be written; the old one stays.
    """
    check_named(path)
    scratch = path.with_name(f".{path.name}.{_process()}.tmp{path.suffix}")
    try:
        scratch.touch()
        mode = stat.S_IMODE(scratch.stat().st_mode)  # as the user's umask has it
        yield scratch
        scratch.chmod(mode)
        scratch.replace(path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with suppress(OSError):  # the folder may be gone
            scratch.unlink()


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders of processes of this machine that were killed."""
    for scratch in (*folder.glob(".*.tmp*"), *folder.glob("*/.*.tmp*")):
        process = _SCRATCH.fullmatch(scratch.name)
        if process is None or process[1] != _machine() or _runs(int(process[2])):
            continue
        if scratch.is_dir():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            with suppress(OSError):
                scratch.unlink()


_SCRATCH = re.compile(r"\..+\.([^.]+)-(\d+)\.tmp.*")  # machine and process


def _process() -> str:
    """This process, as names of temporary files have it."""
    return f"{_machine()}-{os.getpid()}"


def _machine() -> str:
    return re.sub(r"\W+", "-", platform.node()) or "local"


def _runs(process: int) -> bool:
    """Whether a process of this machine is running, under any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def not_written(path: Path, error: OSError) -> OutputError:
    """The error for a file or folder that could not be written."""
    reason = error.strerror or type(error).__name__
    remedy = " Free some space and try again." if error.errno in FULL else ""
    return OutputError(f"{path} could not be written ({reason}).{remedy}", error)


def slug(text: str) -> str:
    """The text with only characters that a file's name can have.

    Example:
        >>> slug("timm:vit_tiny?img_size=32")
        'timm-vit_tiny-img_size-32'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "model"


def write_text(path: Path, text: str) -> None:
    """Write a text file with UNIX line ends, whole or not at all.

    Raises:
        OutputError: if the file cannot be written.
    """
    with atomic_write(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def output_folder(
    path: Path, *, replaced: Collection[str] = (), last: str = ""
) -> Iterator[Path]:
    """A temporary folder whose content goes to `path` together, if the body succeeds.

    After a failure or Ctrl-C, also while the content is moved, everything under `path` is as it
    was. A process that is killed while it moves can leave a part of the new files; `last` is
    then the old file, and each file and each of the folders `replaced` is old or new as a whole
    (or, for the instant between two renames, absent).

    Args:
        path: is made if it does not exist.
        replaced: folders that hold exactly the new files afterwards; what they held before is
            removed. Elsewhere, files with other names stay.
        last: name of the file that goes last, which refers to the others.

    Raises:
        InputError: at once, if nothing can be written to `path`.
        OutputError: if the disk is full, or the content cannot be moved.
    """
    created: list[Path] = []
    scratch = path / f".visprism.{_process()}.tmp{uuid4().hex}"
    try:
        try:
            created += [folder for folder in (path, *path.parents) if not folder.exists()]
            path.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path)
            scratch.mkdir()
        except OSError as error:
            raise InputError(
                f"out must be a folder that can be written to, got {path} ({error.strerror})"
            ) from error
        new, old = scratch / "new", scratch / "old"
        try:
            new.mkdir()
            yield new
        except OSError as error:
            if not _concerns(error, new):
                raise
            raise not_written(path, error) from error
        try:
            _Move(new, old, path).perform(replaced, last)
        except OSError as error:
            raise not_written(path, error) from error
    finally:
        _remove(scratch)
        for folder in created:
            with suppress(OSError):  # not empty, as after success
                folder.rmdir()


def _remove(folder: Path) -> None:
    """Remove a folder if it exists, also if Ctrl-C comes meanwhile."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _concerns(error: OSError, scratch: Path) -> bool:
    """Whether an error is about writing, and not about a file elsewhere that the body reads."""
    files = (str(error), str(error.filename), str(error.filename2))
    return error.errno in FULL or any(str(scratch) in file for file in files)


class _Move:
    """Moves new files to their place, and moves them back if that cannot be completed."""

    def __init__(self, new: Path, old: Path, target: Path) -> None:
        self.new, self.old, self.target = new, old, target
        self.undo = ExitStack()  # runs what it was given in reverse order

    def perform(self, folders: Collection[str], last: str) -> None:
        """Move the folders, then files from the deepest up, then the file `last`.

        Copies of the files that will be replaced come first, since they need space.
        """
        folders = [name for name in folders if (self.new / name).exists()]
        files = [p.relative_to(self.new) for p in self.new.rglob("*") if p.is_file()]
        files = [f for f in files if f.parts[0] not in folders]
        files.sort(key=lambda f: (str(f) == last, -len(f.parts), f))
        for file in files:
            (self.old / file).parent.mkdir(parents=True, exist_ok=True)
            if (self.target / file).is_file():
                shutil.copy2(self.target / file, self.old / file)
        with self.undo:
            for name in folders:
                self._folder(name)
            for file in files:
                self._file(file)
            self.undo.pop_all()  # complete: nothing is moved back

    def _folder(self, name: str) -> None:
        new, old, target = self.new / name, self.old / name, self.target / name

        def restore() -> None:
            if not new.exists():
                target.rename(new)
            if old.exists():
                old.rename(target)

        self.old.mkdir(exist_ok=True)
        self.undo.callback(restore)
        if target.exists():
            target.rename(old)
        new.rename(target)

    def _file(self, file: Path) -> None:
        new, old, target = self.new / file, self.old / file, self.target / file
        missing = [f for f in target.parents if not f.exists()]

        def restore() -> None:
            if not new.exists():
                target.replace(new)
                if old.exists():
                    old.replace(target)
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()

        self.undo.callback(restore)
        target.parent.mkdir(parents=True, exist_ok=True)
        new.replace(target)


_ZIP = b"PK\x03\x04"  # how an archive begins


def check_uncompressed(path: Path) -> None:
    """Check that an archive holds no more bytes than the file has; other files pass.

    NumPy's ``savez`` and ``torch.save`` do not compress. An archive that does, or whose members
    overlap, can grow a thousandfold when it is read.
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
