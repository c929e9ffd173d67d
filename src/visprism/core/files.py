"""Files that are written whole or not at all, locks of folders, and YAML that users write."""

import errno
import os
import re
import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, TypeVar

from visprism.core.errors import DamagedError, InputError, OutputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

T = TypeVar("T")
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


def is_of_user(path: Path, *, secret: bool = False) -> bool:
    """Whether a file is this user's, and others cannot write it, or read it if it is secret."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return False
    if not hasattr(os, "getuid"):  # Windows
        return stat.S_ISREG(status.st_mode)
    others = status.st_mode & (0o077 if secret else 0o002)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not others


@contextmanager
def atomic_write(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """A temporary path next to `path` that takes its place if the body succeeds.

    A reader sees the old file or the new one, never a part, also after a crash or Ctrl-C. It
    has this mode, less the umask, whatever the body makes of it, and was never a link. What a
    killed process leaves has the same name, and is replaced; processes of torchrun have
    separate names.
    """
    rank = os.environ.get("RANK", "0")
    scratch = path.with_name(f".{path.name}.{rank}.tmp{path.suffix}")
    try:
        scratch.unlink(missing_ok=True)
        scratch.touch(mode, exist_ok=False)
        mode = stat.S_IMODE(scratch.stat().st_mode)
        yield scratch
        scratch.chmod(mode)
        scratch.replace(path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with suppress(OSError):  # the folder may be gone
            scratch.unlink()


def not_written(path: Path, error: OSError) -> OutputError:
    """The error for a file or folder that could not be written."""
    reason = error.strerror or type(error).__name__
    remedy = " Free some space and try again." if error.errno in FULL else ""
    return OutputError(f"{path} could not be written ({reason}).{remedy}", error)


def digest_of(path: Path) -> str:
    """A digest of the content of a file; empty where there is none."""
    if not is_file(path):
        return ""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()[:32]


def slug(text: str) -> str:
    """The text with only characters that a file's name can have.

    Example:
        >>> slug("timm:vit_tiny?img_size=32")
        'timm-vit_tiny-img_size-32'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "model"


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a text file with UNIX line ends, whole or not at all."""
    with atomic_write(path, mode) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def output_folder(path: Path, *, last: str = "") -> Iterator[Path]:
    """A temporary folder whose files go to `path`, one by one, if the body succeeds.

    After a failure of the body, as on a full disk, everything under `path` is as it was.
    """
    created: list[Path] = []
    scratch = path / ".visprism.tmp"
    try:
        with writable(path):
            created += [folder for folder in (path, *path.parents) if not folder.exists()]
            path.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)  # of a killed process
            scratch.mkdir()
        try:
            yield scratch
            _move(scratch, path, last)
        except OSError as error:
            files = (str(error), str(error.filename), str(error.filename2))
            if error.errno not in FULL and not any(str(scratch) in file for file in files):
                raise  # it is about a file elsewhere that the body reads
            raise not_written(path, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for folder in created:
            with suppress(OSError):  # not empty, as after success
                folder.rmdir()


def _move(scratch: Path, target: Path, last: str) -> None:
    """Move all files, the deepest first."""
    files = [p.relative_to(scratch) for p in scratch.rglob("*") if p.is_file()]
    for file in sorted(files, key=lambda f: (str(f) == last, -len(f.parts), f)):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (scratch / file).replace(target / file)


_ZIP = b"PK\x03\x04"  # how an archive begins


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Inside, the folder of an option `out` is begun; one sentence says that it cannot be."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"out must be a folder that can be written to, got {folder} ({error.strerror})"
        ) from error


def make_folder(folder: Path) -> None:
    """Make the folder of an option `out`, where it is missing."""
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)


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
        raise DamagedError(f"{path} was refused: it is not an archive ({error})") from error
    compressed = any(m.compress_type != zipfile.ZIP_STORED for m in members)
    if compressed or sum(m.file_size for m in members) > path.stat().st_size:
        raise InputError(
            f"{path} was refused: it must be an archive without compression. Save it again by "
            "np.savez or torch.save."
        )


def lock_folder(folder: Path, name: str) -> int | None:
    """A descriptor that locks a folder until it is closed, or its process ends.

    None where there are no locks: on Windows, and on some file systems.
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


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a folder; see `lock_folder`."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # a folder of somebody else
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may look as well
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


_MOST_JSON = 2**26  # bytes; an index of a million images has a tenth of that


def read_json(path: Path, kind: Any, what: str) -> Any:
    """What a JSON file holds, of a declared type; one sentence says what does not fit.

    Args:
        path: of the file.
        kind: of its content, as msgspec takes it.
        what: that the file must be, in the sentence: "the index of a study".
    """
    import msgspec

    try:
        size = path.stat().st_size
        if size > _MOST_JSON or not path.is_file():  # a pipe would never end
            raise ValueError(f"it is no file of at most {_MOST_JSON // 2**20} MiB")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"{path} must be {what} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} must be {what} ({error})") from error


_DEEPEST = 20  # levels of a file of settings


def read_fields(path: Path, what: str, example: str) -> dict[str, Any]:
    """The fields in a YAML file of ``field: value`` lines."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        depth = 0
        for event in yaml.parse(text):  # the time of PyYAML grows with the square of the depth
            if isinstance(event, yaml.AliasEvent):
                raise InputError(
                    f"{what} {path} must not use YAML aliases. Write each value out."
                )
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise InputError(f"{what} {path} must not be nested more than {_DEEPEST} deep")
        values = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)  # a dictionary would keep the last
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read ({error.strerror})") from error
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(
            f"{what} {path} is not valid YAML ({error})".replace("\n", " ")
        ) from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise InputError(f"{what} {path} must hold lines such as {example}")
    counts = Counter(key.value for key, _ in root.value)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise InputError(f"{what} {path} must name each field once, got {repeated[0]} twice")
    return values


def yaml_text(fields: dict[str, Any]) -> str:
    """Fields as text that `read_fields` reads, in their order."""
    import yaml

    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
