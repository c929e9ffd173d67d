"""The list of studies: one scan of the folders, kept, and away from the event loop."""

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from visprism.app.forms import Form
from visprism.app.settings import REQUEST, Settings, is_study
from visprism.core.errors import InputError, printable
from visprism.core.files import is_locked, read_json, slug
from visprism.study.steps import steps_of_run
from visprism.study.store import INDEX, read_index

FAILED = "failed.txt"  # in the folder of a study that failed: the reason
_PAUSE = 20.0  # times as long as a scan takes, a scan counts
_LONGEST = 300  # characters of a reason
_BAD = ("failed", "unreadable")
_FAILURE = ("model", "analysis", "kind", "reason")


class Listing:
    """Every study, by a name that it keeps; only what has changed is read again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # of names
        self._names: dict[Path, str] = {}
        self._entries: dict[Path, tuple[tuple, dict[str, Any]]] = {}  # with what they depend on
        self._scan: asyncio.Future[list[dict[str, Any]]] | None = None
        self._next = 0.0  # when the last scan no longer counts, of `time.monotonic`

    async def entries(self) -> list[dict[str, Any]]:
        """Every study, the newest first, as one scan for all clients found them."""
        if self._scan is None or (self._scan.done() and time.monotonic() > self._next):
            self._scan = asyncio.ensure_future(asyncio.to_thread(self._scanned))
        return await asyncio.shield(self._scan)

    async def folder(self, name: str) -> Path | None:
        """The folder of a study; None if there is none, or no longer."""
        if name not in self._names.values():
            await self.entries()
        folder = next((f for f, known in self._names.copy().items() if known == name), None)
        return folder if folder is not None and folder.is_dir() else None

    async def entry(self, folder: Path) -> dict[str, Any]:
        """What the list shows of one folder, as it is now."""
        _, entry = await asyncio.to_thread(self._entry, folder)
        return {"name": self._names[folder], **entry}

    def new_folder(self, title: str) -> tuple[str, Path]:
        """Make a folder of the workspace for a study with this title; returns its name."""
        stem = slug(title)[:60].strip("-.") or "study"
        with self._lock:
            for name in chain([stem], (f"{stem}-{number}" for number in count(2))):
                folder = self._settings.workspace / name
                if name not in {*self._names.values(), "uploads"} and not folder.exists():
                    folder.mkdir()
                    self._names[folder] = name
                    self._next = 0.0
                    return name, folder
        raise AssertionError

    def is_resumable(self, folder: Path) -> bool:
        """Whether the app made the folder of a study. Other folders are read only."""
        return folder not in self._settings.studies and (folder / REQUEST).is_file()

    def _scanned(self) -> list[dict[str, Any]]:
        begin = time.monotonic()
        made = sorted(path for path in self._settings.workspace.glob("*") if is_study(path))
        folders = [*made, *self._settings.studies]
        self._name(folders)
        self._entries = {folder: self._entry(folder) for folder in folders}
        listed = [
            {"name": self._names[folder], **entry}
            for folder, (_, entry) in self._entries.items()
        ]
        self._next = time.monotonic() + _PAUSE * (time.monotonic() - begin)
        return sorted(listed, key=lambda study: study["date"], reverse=True)

    def _name(self, folders: list[Path]) -> None:
        with self._lock:
            names = {f: name for f, name in self._names.items() if f.is_dir()}
            taken = {*names.values()}
            for folder in folders:
                if folder not in names:
                    stem = slug(folder.resolve().name) or "study"
                    others = (f"{stem}-{number}" for number in count(2))
                    names[folder] = next(n for n in chain([stem], others) if n not in taken)
                    taken.add(names[folder])
            self._names = names

    def _entry(self, folder: Path) -> tuple[tuple, dict[str, Any]]:
        """What the list shows of a folder, and the times and sizes by which it is current."""
        now = (
            *map(_time_and_size, (folder / n for n in (INDEX, REQUEST, FAILED))),
            _steps(folder),
        )
        before, entry = self._entries.get(folder, (None, {}))
        if now == before and entry["state"] not in ("interrupted", "running elsewhere"):
            return now, entry
        state, form = stored_state(folder), _title_and_models(folder)
        return now, {
            "title": form.get("title") or printable(folder.resolve().name),
            "date": _date(folder),
            "models": form.get("models", ""),
            "state": state["state"],
            "results": len(state["finished"]),
            "reason": state["reason"] if state["state"] in _BAD else "",
            "resumable": self.is_resumable(folder),
        }


def stored_state(folder: Path) -> dict[str, Any]:
    """The state of a study that no job of this app runs, as its folder has it."""
    empty = {"reason": "", "plan": [], "finished": [], "failures": []}
    stored = {**empty, "started": None, "progress": None, **_state_of_files(folder)}
    if reason := _stored_reason(folder):
        stored.update(state="failed", reason=reason)
    if stored["state"] == "interrupted" and is_locked(folder):
        stored.update(state="running elsewhere", reason="", followed=True)
    return stored


def form_of(folder: Path) -> Form:
    """The form that a study was started with."""
    return read_json(folder / REQUEST, Form, "the form of a study")


def _state_of_files(folder: Path) -> dict[str, Any]:
    """The state of a study, which may be somebody else's."""
    try:
        if not folder.is_dir():
            return {"state": "unreadable", "reason": "its folder was deleted"}
        if not (folder / INDEX).exists():
            return _training(folder)
        content = read_index(folder / INDEX)
        header: Mapping[str, Any] = content["header"]
        finished = [
            {
                "models": [printable(model) for model in entry["models"]],
                "analysis": printable(entry["analysis"]),
                "seconds": entry["seconds"],
            }
            for entry in content["entries"].values()
        ]
        failures = [
            {name: printable(failure[name]) for name in _FAILURE}
            for failure in header.get("failures", ())
        ]
    except (InputError, OSError) as error:
        reason = f"{INDEX} cannot be read ({printable(str(error))})"
        return {"state": "unreadable", "reason": reason[:_LONGEST]}
    state = "complete" if "keys" in header else "interrupted"
    return {"state": state, "finished": finished, "failures": failures}


def _training(folder: Path) -> dict[str, Any]:
    """The state of a folder that a monitor may write to, or has written to."""
    steps = [{"analysis": f"step {step}"} for step in steps_of_run(folder)]
    if not steps:
        return {"state": "interrupted", "reason": "no result is complete", "followed": True}
    return {"state": "watched", "finished": steps, "followed": True}


def _stored_reason(folder: Path) -> str:
    """Why a study failed, as far as its folder says so."""
    path = folder / FAILED
    with suppress(OSError):
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                return printable(file.read(_LONGEST))[:_LONGEST]
    return ""


def _title_and_models(folder: Path) -> dict[str, str]:
    """As the form states them that a study was started with, if it can be read."""
    with suppress(InputError):
        form = form_of(folder)
        models = ", ".join(m.name or m.checkpoint or "" for m in form.models)
        return {"title": printable(form.title or ""), "models": printable(models)[:_LONGEST]}
    return {}


def _time_and_size(path: Path) -> tuple[int, int]:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return 0, 0


def _steps(folder: Path) -> int:
    """Number of studies of a monitor in a folder without a study."""
    with suppress(OSError):
        return 0 if (folder / INDEX).exists() else len(steps_of_run(folder))
    return 0


def _date(folder: Path) -> str:
    """When a study was last written to, as 2026-03-01 12:30."""
    steps = [path / INDEX for path in steps_of_run(folder).values()]
    for path in (folder / INDEX, folder / REQUEST, *steps[-1:]):
        if written := _time_and_size(path)[0]:
            return f"{datetime.fromtimestamp(written / 1e9):%Y-%m-%d %H:%M}"
    return ""
