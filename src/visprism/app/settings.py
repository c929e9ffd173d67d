"""Settings of the app: the folders that it may read, where it writes, and its limits."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from visprism.core.errors import InputError
from visprism.core.files import is_of_user, make_folder, write_text
from visprism.study.steps import steps_of_run

_TOKEN_FILE = ".visprism-token"
_FEWEST = 32  # characters of a token

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What one client may ask for."""

    request_bytes: int = MIB // 4  # of a request that is no upload
    image_bytes: int = 16 * MIB  # of an uploaded image
    checkpoint_bytes: int = 512 * MIB  # of an uploaded checkpoint
    upload_bytes: int = 2048 * MIB  # of all uploads together
    upload_seconds: float = 60.0  # of one upload
    images: int = 500  # of one uploaded set
    models: int = 8  # of a study
    waiting: int = 20  # studies that run or wait
    minutes: float = 240.0  # of a study
    model_bytes: int = 512 * MIB  # weights of models that live panels hold
    live_images: int = 64  # of each data set
    memory_bytes: int = 6144 * MIB  # that the server may take beyond what it starts with


@dataclass(frozen=True)
class Settings:
    """What the app serves."""

    workspace: Path  # new studies and uploads are written into it
    studies: Sequence[Path] = ()  # folders of studies, read only
    checkpoints: Sequence[Path] = ()  # folders with checkpoints, read only
    data: Sequence[str] = ("shapes",)  # names of data sets, as `examine` takes them
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name, folders in (("studies", self.studies), ("weights", self.checkpoints)):
            for folder in folders:
                if not folder.is_dir():
                    raise InputError(f"{name} must be folders, got {folder}")
        make_folder(self.workspace)

    @cached_property
    def token(self) -> str:
        """The secret part of the address; a server that is started again has the same."""
        path = self.workspace / _TOKEN_FILE
        stored = path.read_text("utf-8").strip() if is_of_user(path, secret=True) else ""
        if len(stored) >= _FEWEST and stored.isalnum():
            return stored
        token = secrets.token_hex(_FEWEST // 2)
        write_text(path, token + "\n", mode=0o600)
        return token

    @property
    def uploaded_images(self) -> Path:
        """The folder of uploaded sets of images."""
        return self.workspace / "uploads" / "images"

    @property
    def uploaded_checkpoints(self) -> Path:
        """The folder of uploaded checkpoints."""
        return self.workspace / "uploads" / "checkpoints"

    def data_sets(self) -> Mapping[str, str]:
        """Names of data sets for `examine`, by what a form shows."""
        uploads = sorted(p for p in self.uploaded_images.glob("*") if p.is_dir())
        return {name: name for name in self.data} | {
            f"uploaded: {folder.name}": f"folder:{folder}" for folder in uploads
        }

    def checkpoint_files(self) -> Mapping[str, Path]:
        """Checkpoints by what a form shows: the name of the folder and of the file."""
        files = {}
        for folder in (*self.checkpoints, self.uploaded_checkpoints):
            for path in sorted(folder.glob("*")):
                inside = path.resolve().is_relative_to(folder.resolve())  # also behind a link
                if path.suffix in CHECKPOINT_SUFFIXES and path.is_file() and inside:
                    files.setdefault(f"{folder.name}/{path.name}", path.resolve())
        return files


CHECKPOINT_SUFFIXES = frozenset({".safetensors", ".pt", ".pth", ".ckpt", ".bin"})
REQUEST = "request.json"  # of a study that the app started


def studies_in(folder: Path) -> list[Path]:
    """A study or training itself; of another folder the studies and trainings in it."""
    inner = [] if _is_listed(folder) else sorted(filter(_is_listed, folder.glob("*")))
    return inner or [folder]


def _is_listed(folder: Path) -> bool:
    return is_study(folder) or bool(steps_of_run(folder))


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study, or was made for one."""
    try:
        return (folder / REQUEST).is_file() or (folder / "study.json").is_file()
    except OSError:  # a folder of somebody else
        return False
