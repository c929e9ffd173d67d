"""A study on disk: every result is written when it exists, under a key of what made it."""

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

from visprism.core.errors import InputError
from visprism.core.files import (
    is_file,
    lock_folder,
    output_folder,
    read_json,
    slug,
    writable,
    write_text,
)
from visprism.study.record import Entry, Failure, Header, StudyRecord
from visprism.table.result import Result
from visprism.table.stored import UnknownTypeError

INDEX = "study.json"
# What the folder of an interrupted study may hold before it has an index.
_BEFORE_INDEX = {"results", "figures", "study.yaml", "request.json", "failed.txt"}
_FILE = re.compile(r"results/(?!\.)[^/\\\0]+")  # of a result
_FORMAT = 2  # of the index; raise it when entries change their meaning
_LONGEST = 100  # characters of the models in the name of a file, which has at most 255
_AGAIN = "Run the study again with this folder as out to measure it again."


class StoredEntry(TypedDict):
    """What the index says of the results of one analysis of one model, or of two."""

    models: Annotated[list[str], msgspec.Meta(min_length=1)]
    analysis: str
    options: dict[str, Any]
    images: int
    seconds: float
    # Digests of the contents by name.
    files: Annotated[dict[str, str], msgspec.Meta(min_length=1)]


class _Versioned(TypedDict):
    format: int


class Index(_Versioned):
    """The content of ``study.json``."""

    header: Header
    entries: dict[str, StoredEntry]


def key_of(**parts: Any) -> str:
    """A digest of what determines a result."""
    text = json.dumps({**parts, "visprism": version("visprism")}, sort_keys=True, default=str)
    return _digest(text.encode())


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


@dataclass
class Store:
    """The results of a study by key; in a folder, or in memory where there is none.

    The index is written after each result, so that an interrupted study lacks nothing that was
    complete.
    """

    folder: Path | None = None
    header: Header = field(default_factory=Header)  # of the study as a whole
    entries: dict[str, StoredEntry] = field(default_factory=dict)  # by key
    writes: bool = True  # of several processes that make a study, the first
    damaged: dict[str, InputError] = field(
        default_factory=dict
    )  # why files are not used, by key
    _results: dict[str, tuple[Result, ...]] = field(default_factory=dict)
    _lock: int | None = None  # descriptor of the folder, while this run writes to it

    @classmethod
    def open(
        cls,
        folder: Path | None,
        identity: Header,
        *,
        fresh: bool,
        writes: bool = True,
    ) -> "Store":
        """The store in `folder`, with what an earlier run of the same study left there."""
        store = cls(folder, {**identity}, writes=writes)
        if folder is None:
            return store
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / ".visprism-write-test"
            probe.touch()
            probe.unlink(missing_ok=True)  # another process of this study may be faster
            check_out(folder)
        store._lock = lock_folder(folder, "out") if writes else None
        try:
            if (folder / INDEX).exists() and not fresh:
                store._resume(read_index(folder / INDEX), identity)
        except InputError:
            store.close()
            raise
        return store

    def _resume(self, index: Index, identity: Header) -> None:
        before: Mapping[str, Any] = index["header"]
        changes = [
            f"{k} ({before.get(k)} before, {v} now)" if isinstance(v, int) else k
            for k, v in identity.items()
            if before.get(k) != v
        ]
        if changes:
            raise InputError(
                f"out must be an empty folder or hold a study with the same images in the "
                f"same order and the same seed, and {self.folder} differs in "
                f"{', '.join(changes)}. Data that is not a data set may give other images each "
                "time. Choose another folder, or pass fresh=True to start over."
            )
        self.header = {**index["header"], **identity}
        self.entries = index["entries"]

    def close(self) -> None:
        """Let other runs write to the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def get(self, key: str) -> tuple[Result, ...]:
        """The results under a key; none where one is missing, changed or of another plug-in."""
        if key not in self._results and self.folder is not None:
            files = self.entries[key]["files"].items()
            try:
                self._results[key] = tuple(_read(self.folder, *file) for file in files)
            except InputError as error:
                self.damaged[key] = error
        return self._results.get(key, ())

    def entry(self, key: str) -> Entry:
        """The stored entry under a key, with its results."""
        stored = self.entries[key]
        return Entry(
            models=tuple(stored["models"]),
            analysis=stored["analysis"],
            results=self.get(key),
            options=stored["options"],
            images=stored["images"],
            seconds=stored["seconds"],
            key=key,
        )

    def lost(self, key: str) -> Failure:
        """The failure of results under a key that `get` could not read."""
        stored, error = self.entries[key], self.damaged[key]
        unknown = isinstance(error, UnknownTypeError)
        reason = error.reason if unknown else f"{error}. {_AGAIN}"
        return Failure(" and ".join(stored["models"]), stored["analysis"], reason)

    def put(self, entry: Entry) -> None:
        """Keep results, and write them if there is a folder: files first, then the index."""
        self._results[entry.key] = entry.results
        files = {}
        if self.folder is not None and self.writes:
            (self.folder / "results").mkdir(exist_ok=True)
            for result, name in zip(entry.results, file_names(entry), strict=True):
                result.save(self.folder / name)
                result.save_csv((self.folder / name).with_suffix(".csv"))
                files[name] = _digest((self.folder / name).read_bytes())
        self.entries[entry.key] = {
            "models": list(entry.models),
            "analysis": entry.analysis,
            "options": dict(entry.options),
            "images": entry.images,
            "seconds": entry.seconds,
            "files": files,
        }
        self.write()

    def write(self) -> None:
        """Write the index, whole or not at all."""
        if self.folder is not None and self.writes:
            content = {"format": _FORMAT, "header": self.header, "entries": self.entries}
            text = msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
            write_text(self.folder / INDEX, f"{text}\n")


def check_out(folder: Path, names: Collection[str] = ()) -> None:
    """Refuse a folder that holds neither a study nor a part of one, but other files.

    Args:
        folder: into which a study is to be written.
        names: of further files that a part of a study has.
    """
    if (folder / INDEX).exists() or not folder.exists():
        return
    others = {path.name for path in folder.glob("[!.]*")} - _BEFORE_INDEX - {*names}
    if others:
        raise InputError(
            f"out must be an empty folder or hold a study, got {folder} with {min(others)} "
            "that is not of a study. Choose another folder."
        )


def file_names(entry: Entry) -> list[str]:
    """Where results are written, relative to the folder of a study.

    Each has another name: the key is part of it, since names of models may hold anything.
    """
    models = slug("-and-".join(entry.models))[:_LONGEST]
    stem = f"results/{models}-{slug(entry.analysis)}"
    names: list[str] = []
    for result in entry.results:
        name = f"{stem}-{slug(result.identifier)}-{slug(entry.key)[:8]}"
        same = sum(n == f"{name}.npz" or n.startswith(f"{name}--") for n in names)
        names.append(f"{name}--{same + 1}.npz" if same else f"{name}.npz")
    return names


def read_index(path: Path) -> Index:
    """The index of a study; one sentence says what is wrong with another file."""
    what = "the index of a study"
    stored = read_json(path, _Versioned, what)["format"]
    if stored != _FORMAT:
        raise InputError(
            f"{path} has format {stored}, and this version reads {_FORMAT}. Use the "
            "version that wrote it, or run the study again in another folder."
        )
    index = read_json(path, Index, what)
    header = index["header"]
    keys = header.get("keys", [])
    names = [name for entry in index["entries"].values() for name in entry["files"]]
    once = len({*keys}) == len(keys) and len({*names}) == len(names)
    if not {*keys} <= {*index["entries"]} or not once:
        raise InputError(
            f"{path} must be {what}, and entries are missing or repeated. Run the study again "
            "in another folder."
        )
    for name in names:
        if not _FILE.fullmatch(name):
            raise InputError(
                f"the index of a study must name files inside its folder, got {name!r}"
            )
    return index


def save_study(study: StudyRecord, folder: Path) -> None:
    """Write every result and the index, all of them or none.

    The folder is what `examine` with `out` leaves, so that the same call resumes it.
    """
    entries = [
        entry if entry.key else replace(entry, key=_digest(str(number).encode()))
        for number, entry in enumerate(study.entries)
    ]
    header: Header = {
        **study.header,
        "models": list(study.models),
        "failures": [failure.stored() for failure in study.failures],
        "keys": [entry.key for entry in entries],
    }
    with output_folder(folder, last=INDEX) as scratch:
        store = Store(scratch, header)
        for entry in entries:
            store.put(entry)
        store.write()


def load_study(folder: Path) -> StudyRecord:
    """The study that a folder holds, also one that was interrupted.

    Results that cannot be read, or are of plug-ins that are not installed, are left out and
    listed as failures.
    """
    if not is_file(folder / INDEX):
        raise InputError(f"{folder} must hold a study, and has no {INDEX}")
    index = read_index(folder / INDEX)
    header = index["header"]
    latest = {(*e["models"], e["analysis"]): key for key, e in index["entries"].items()}
    keys = header.get("keys", list(latest.values()))
    store = Store(folder, {**header}, index["entries"], writes=False)
    entries = [store.entry(key) for key in keys if store.get(key)]
    lost = [store.lost(key) for key in store.damaged]
    failures = dict.fromkeys([*(Failure(**f) for f in header.get("failures", ())), *lost])
    measured = (m for key in keys for m in store.entries[key]["models"])
    models = tuple(header.get("models", dict.fromkeys(measured)))
    return StudyRecord(models, tuple(entries), tuple(failures), header)


def _read(folder: Path, name: str, digest: str) -> Result:
    """A result of the study, unless its file is missing, or was changed since."""
    path = folder / name
    try:
        if not path.is_file():
            raise InputError(f"{name} is missing")
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{name} is a link to a file outside of the study")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error.strerror})") from error
    if _digest(content) != digest:
        raise InputError(f"{name} was changed since it was measured")
    result = Result.load(path)
    try:
        _ = [*result.sentences()], result.answers()
    except Exception as error:  # of numbers that no measurement gives
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{name} holds numbers that are not a result ({reason})") from error
    return result
