"""A study on disk: every result is written when it exists, under a key of what made it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import remove_leftovers, slug, write_text
from visprism.core.locks import lock_folder
from visprism.table.result import Result

INDEX = "study.json"
_REPLACED = ("report.html", "study.md", "results.json")  # what a report writes
_FORMAT = 1  # of the index; raise it when entries change their meaning


def key_of(**parts: Any) -> str:
    """A digest of what determines a result."""
    text = json.dumps({**parts, "visprism": version("visprism")}, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass
class Store:
    """The results of a study by key; in a folder, or in memory where there is none.

    The index is written after each result, so that an interrupted study lacks nothing that was
    complete.
    """

    folder: Path | None = None
    header: dict[str, Any] = field(default_factory=dict)  # of the study as a whole
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)  # key -> description
    _results: dict[str, tuple[Result, ...]] = field(default_factory=dict)
    writes: bool = True  # of several processes that make a study, the first
    _lock: int | None = None  # descriptor of the folder, while this run writes to it

    @classmethod
    def open(
        cls,
        folder: Path | None,
        identity: Mapping[str, Any],
        *,
        fresh: bool,
        writes: bool = True,
    ) -> "Store":
        """The store in `folder`, with what an earlier run of the same study left there.

        Args:
            folder: None to keep results in memory only.
            identity: what makes two runs the same study: images, seed, format.
            fresh: forget what an earlier run left.
            writes: whether this process writes results, of several that make a study.
        """
        store = cls(folder, dict(identity), writes=writes)
        if folder is None:
            return store
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / ".visprism-write-test"
            probe.touch()
            probe.unlink(missing_ok=True)  # another process of this study may be faster
            remove_leftovers(folder)
            others = [name for name in _REPLACED if (folder / name).exists()]
        except OSError as error:
            raise InputError(
                f"out must be a folder that can be written to, got {folder} ({error.strerror})"
            ) from error
        if others and not (folder / INDEX).exists():
            raise InputError(
                f"out must be an empty folder or hold a study, got {folder} with {others[0]} "
                "that is not of a study. Choose another folder."
            )
        store._lock = lock_folder(folder, "out") if writes else None
        try:
            store._read(folder / INDEX, identity, fresh=fresh)
        except InputError:
            store.close()
            raise
        return store

    def _read(self, index: Path, identity: Mapping[str, Any], *, fresh: bool) -> None:
        """Take over what an earlier run left."""
        if fresh or not index.exists():
            return
        earlier = read_index(index)
        before = earlier["header"]
        changes = [
            _change(k, before.get(k), v) for k, v in identity.items() if before.get(k) != v
        ]
        if changes:
            raise InputError(
                f"out must be an empty folder or hold a study with the same images in the "
                f"same order and the same seed, and {index.parent} differs in "
                f"{', '.join(changes)}. Data that is not a data set may give other images each "
                "time. Choose another folder, or pass fresh=True to start over."
            )
        self.header = {**earlier["header"], **identity}
        self.entries = earlier["entries"]

    def close(self) -> None:
        """Let other runs write to the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def get(self, key: str) -> tuple[Result, ...] | None:
        """The results under a key; None if there are none, or a file of them is damaged."""
        if key in self._results:
            return self._results[key]
        entry = self.entries.get(key)
        if entry is None or self.folder is None:
            return None
        try:
            results = tuple(
                Result.load(path_inside(self.folder, name)) for name in entry["files"]
            )
        except (InputError, OSError):
            return None
        self._results[key] = results
        return results

    def put(self, key: str, results: Sequence[Result], **description: Any) -> None:
        """Keep results, and write them if there is a folder: files first, then the index."""
        self._results[key] = tuple(results)
        files = file_names(description["models"], description["analysis"], results)
        if self.folder is not None and self.writes:
            self._forget_others(key, files)
            (self.folder / "results").mkdir(exist_ok=True)
            for result, name in zip(results, files, strict=True):
                result.save(self.folder / name)
                result.save_csv((self.folder / name).with_suffix(".csv"))
        self.entries[key] = {**description, "files": files if self.folder else []}
        self.write()

    def _forget_others(self, key: str, files: Sequence[str]) -> None:
        """Remove entries whose files are about to be written with other content."""
        others = [k for k, e in self.entries.items() if k != key and set(e["files"]) & {*files}]
        for other in others:
            del self.entries[other]
        if others:
            self.write()

    def write(self) -> None:
        """Write the index, whole or not at all."""
        if self.folder is not None and self.writes:
            content = {"format": _FORMAT, "header": self.header, "entries": self.entries}
            write_text(self.folder / INDEX, json.dumps(content, indent=1) + "\n")


def _change(name: str, earlier: Any, now: Any) -> str:
    """The name of what differs, with both values where they are numbers."""
    if isinstance(earlier, int) and isinstance(now, int):
        return f"{name} ({earlier} before, {now} now)"
    return name


def file_names(models: Sequence[str], analysis: str, results: Sequence[Result]) -> list[str]:
    """Where results are written, relative to the folder of a study; each has another name."""
    stem = f"results/{slug('-and-'.join(models))}-{slug(analysis)}"
    names: list[str] = []
    for result in results:
        name = f"{stem}-{slug(result.identifier)}"
        same = sum(n == f"{name}.npz" or n.startswith(f"{name}--") for n in names)
        names.append(f"{name}--{same + 1}.npz" if same else f"{name}.npz")
    return names


def read_index(path: Path) -> dict[str, Any]:
    """The index of a study."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        stored = content["format"]
        if not isinstance(content["header"], dict) or not isinstance(content["entries"], dict):
            raise TypeError("header and entries must be objects")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} must be the index of a study ({error})") from error
    if stored != _FORMAT:
        raise InputError(
            f"{path} has format {stored}, and this version reads {_FORMAT}. Update visprism."
        )
    return content


def path_inside(folder: Path, name: str) -> Path:
    """The path of a file that an index names, which must lie in the folder of the study."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(
            f"the index of a study must name files inside its folder, got {name!r}"
        )
    return path
