"""The studies that the app shows, and the queue of those that it runs."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from visprism.app.job import ACTIVE, HASTE, Job
from visprism.app.settings import REQUEST, Settings
from visprism.app.study_request import StudyRequest
from visprism.core.errors import InputError, printable
from visprism.core.files import write_text
from visprism.study.store import INDEX, read_index

_AT_ONCE = 1  # studies; and as many plans
_BAD = ("failed", "unreadable")
_FAILURE = ("model", "analysis", "kind", "reason")
_LONGEST = 300  # characters of a reason
# What files of strangers raise: damaged, nested too deep, of other types.
_UNREADABLE = (InputError, OSError, RecursionError, LookupError, TypeError, ValueError)


class BusyError(RuntimeError):
    """Too many requests wait already."""


@dataclass
class Library:
    """Studies by name. One runs at a time, the others wait in the order of their start."""

    settings: Settings
    jobs: dict[str, Job] = field(default_factory=dict)
    _studies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _plans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _tasks: set[asyncio.Task] = field(default_factory=set)
    _planning: set[Job] = field(default_factory=set)

    async def plan(self, request: StudyRequest) -> Job:
        """The plan of a study with its expected time; nothing is measured.

        Raises:
            BusyError: if too many plans wait.
        """
        if len(self._planning) >= self.settings.limits.waiting:
            raise BusyError
        job = Job(request.to_json(), None)
        self._planning.add(job)
        try:
            async with self._plans:
                await job.run()
        finally:
            self._planning.discard(job)
        return job

    def start(self, form: Mapping[str, Any]) -> str:
        """Start a study in a new folder of the workspace; returns its name.

        The folder keeps the form, which is checked again when the study is resumed.

        Raises:
            InputError: if a value of the form is none that the app allows.
            BusyError: if too many studies wait.
        """
        request = StudyRequest.of_form(form, self.settings)
        names = self.settings.study_folders()
        stem = request.folder_name
        candidates = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
        name = next(
            n
            for n in candidates
            if n not in names and n != "uploads" and not (self.settings.workspace / n).exists()
        )
        self._check_room()
        folder = self.settings.workspace / name
        folder.mkdir()
        stored = {**form, "title": request.title}
        write_text(folder / REQUEST, json.dumps(stored, indent=1) + "\n")
        self._run(name, request, folder)
        return name

    def resume(self, name: str) -> None:
        """Run a study again from where it ended.

        Raises:
            InputError: if it was not started here, runs already, or its form is not allowed.
            BusyError: if too many studies wait.
        """
        folder = self.settings.study_folder(name)
        if folder is None or not (folder / REQUEST).is_file() or folder in self.read_only:
            raise InputError(f"{name} must be a study of this app to be resumed")
        if self.state(name)["state"] in ACTIVE:
            raise InputError(f"{name} must have ended to be resumed, and it runs")
        self._check_room()
        try:
            form = json.loads((folder / REQUEST).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            form = None
        if not isinstance(form, dict):
            raise InputError(f"{REQUEST} of {name} must be the form of a study")
        self._run(name, StudyRequest.of_form(form, self.settings), folder)

    async def cancel(self, name: str) -> None:
        """End a study that runs or waits."""
        job = self.jobs.get(name)
        if job is None or job.state not in ACTIVE:
            raise InputError(f"{name} must run to be canceled")
        await job.cancel()

    async def close(self) -> None:
        """End every process."""
        jobs = [*self._planning, *self.jobs.values()]
        await asyncio.gather(*(job.cancel(HASTE) for job in jobs if job.state in ACTIVE))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def read_only(self) -> frozenset[Path]:
        """Folders that the user gave, which the app does not write to."""
        return frozenset(self.settings.studies)

    def state(self, name: str) -> dict[str, Any]:
        """What a page shows of a study: of its job, or of what its folder holds."""
        folder = self.settings.study_folder(name)
        if folder is None:
            raise InputError(f"the app has no study {name!r}")
        if name in self.jobs:
            return self.jobs[name].to_json()
        return {**Job({}, folder).to_json(), **_stored_state(folder)}

    def listing(self) -> list[dict[str, Any]]:
        """Name, title and state of every study, with the reason of a bad one."""
        listed = []
        for name, folder in self.settings.study_folders().items():
            state = self.state(name)
            own = folder not in self.read_only and (folder / REQUEST).is_file()
            listed.append(
                {
                    "name": name,
                    "title": _title(folder),
                    "state": state["state"],
                    "reason": state["reason"] if state["state"] in _BAD else "",
                    "resumable": own,
                }
            )
        return listed

    def _check_room(self) -> None:
        waiting = sum(job.state == "waiting" for job in self.jobs.values())
        if waiting >= self.settings.limits.waiting:
            raise BusyError

    def _run(self, name: str, request: StudyRequest, folder: Path) -> None:
        self.jobs[name] = job = Job(request.to_json(), folder)

        async def in_turn() -> None:
            async with self._studies:
                if job.state in ACTIVE:
                    await job.run()

        task = asyncio.get_running_loop().create_task(in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _stored_state(folder: Path) -> dict[str, Any]:
    """The state of a study that no job runs, which may be somebody else's."""
    try:
        if not (folder / INDEX).exists():
            return {"state": "interrupted", "reason": "no result is complete"}
        content = read_index(folder / INDEX)
        finished = [
            {
                "models": [printable(str(model)) for model in entry["models"]],
                "analysis": printable(str(entry["analysis"])),
                "seconds": _seconds(entry["seconds"]),
            }
            for entry in content["entries"].values()
        ]
        failures = [
            {name: printable(str(failure[name])) for name in _FAILURE}
            for failure in content["header"].get("failures", ())
        ]
    except _UNREADABLE as error:
        reason = f"{INDEX} cannot be read ({printable(str(error) or type(error).__name__)})"
        return {"state": "unreadable", "reason": reason[:_LONGEST]}
    state = "complete" if "keys" in content["header"] else "interrupted"
    return {"state": state, "finished": finished, "failures": failures}


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not isfinite(seconds):
        raise ValueError("seconds must be finite")
    return seconds


def _title(folder: Path) -> str:
    with suppress(*_UNREADABLE):
        return printable(str(json.loads((folder / REQUEST).read_text("utf-8"))["title"]))
    return printable(folder.resolve().name)
