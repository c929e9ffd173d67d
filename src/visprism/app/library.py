"""The studies that the app shows, and the jobs that run them, each in a separate process."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from visprism.app.forms import Form, Named, named, stated
from visprism.app.settings import REQUEST, Settings
from visprism.core.errors import InputError, OutputError, printable
from visprism.core.files import is_locked, read_json, slug, write_text
from visprism.study.steps import steps_of_run
from visprism.study.store import INDEX, read_index

State = Literal["waiting", "running", "complete", "failed", "canceled"]
ACTIVE = frozenset({"waiting", "running"})
_PATIENCE = 10.0  # seconds that a canceled process has to end
_HASTE = 1.5  # and where the app ends with it
_LOOK = 2.0  # seconds between looks at a folder that a monitor writes to
_LINE = 2**22  # bytes of the longest event
_LONGEST = 300  # characters of a reason


@dataclass(eq=False)
class Job:
    """One study that runs in a separate process, and its state."""

    request: Named
    folder: Path
    state: State = "waiting"
    reason: str = ""
    plan: list[str] = field(default_factory=list)
    finished: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    started: dict[str, Any] | None = None  # the analysis that runs
    progress: dict[str, Any] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    _canceled: bool = False

    async def run(self) -> None:
        """Run the study in a process; its end is the end of the job, whatever it is."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "visprism.app.study_process")
        self._process = process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_LINE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        values = {"request": self.request, "folder": str(self.folder)}
        line = msgspec.json.encode(values) + b"\n"
        self._change(state="running")
        try:
            process.stdin.write(line)
            with suppress(ConnectionError):
                await process.stdin.drain()
            async for event in process.stdout:
                self._record(**json.loads(event))
            await process.wait()
        finally:
            await self._terminate(_PATIENCE)
        if self.state in ACTIVE:
            code = process.returncode
            reason = f"the process of the study ended with code {code}, see the terminal"
            if code == -signal.SIGKILL:
                reason = "the system ended the process, perhaps for lack of memory"
            self._end("canceled") if self._canceled else self._end("failed", reason)

    async def cancel(self, patience: float = _PATIENCE) -> None:
        """End the job; the results that exist stay, so that it can be resumed."""
        self._canceled = True
        await self._terminate(patience)
        if self.state in ACTIVE:
            self._end("canceled")

    async def _terminate(self, patience: float) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()  # at which the process ends
        try:
            await asyncio.wait_for(process.wait(), patience)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _record(self, event: str, values: dict[str, Any]) -> None:
        match event:
            case "planned":
                self._change(plan=values["lines"])
            case "started":
                self._change(started=values, progress=None)
            case "finished":
                self._change(finished=[*self.finished, values])
            case "stopped":
                self._change(failures=[*self.failures, values])
            case "progress":
                self._change(progress=values)
            case "ended" if self.state in ACTIVE:
                self._end(values["state"], values["reason"])

    def _end(self, state: State, reason: str = "") -> None:
        if state == "failed":
            with suppress(OutputError):  # no room, or no folder any more
                write_text(self.folder / _FAILED, reason)
        self._change(state=state, reason=reason, started=None, progress=None)

    def _change(self, **values: Any) -> None:
        vars(self).update(values)
        self._changed.set()
        self._changed = asyncio.Event()

    def to_json(self) -> dict[str, Any]:
        """What a page shows of the job."""
        hidden = ("request", "folder")
        return {k: v for k, v in vars(self).items() if k not in hidden and k[0] != "_"}

    async def changes(self) -> AsyncIterator[dict[str, Any]]:
        """The state now and after each change, until the job has ended."""
        while True:
            changed, state = self._changed, self.to_json()
            yield state
            if state["state"] not in ACTIVE:
                return
            await changed.wait()


@dataclass
class Library:
    """Studies by name. One runs at a time, the others wait in the order of their start."""

    settings: Settings
    jobs: dict[str, Job] = field(default_factory=dict)
    _tasks: set[asyncio.Task] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def start(self, values: Mapping[str, Any]) -> str:
        """Start a study in a new folder of the workspace; returns its name.

        The folder keeps the form, which is checked again when the study is resumed.
        """
        form = stated(Form, values)
        request = named(form, self.settings)
        names = {*self.settings.study_folders(), "uploads"}
        stem = slug(str(request.title))[:60].strip("-.") or "study"
        candidates = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
        free = (n for n in candidates if not (self.settings.workspace / n).exists())
        name = next(n for n in free if n not in names)
        folder = self.settings.workspace / name
        folder.mkdir()
        stored = msgspec.structs.replace(form, title=request.title)
        write_text(folder / REQUEST, msgspec.json.encode(stored).decode())
        self._run(name, request, folder)
        return name

    def resume(self, name: str) -> None:
        """Run a study of this app again from where it ended."""
        folder = self.settings.study_folder(name)
        if folder is None or not self._is_resumable(folder):
            raise InputError(f"{name} must be a study of this app to be resumed")
        if self.state(name)["state"] in ACTIVE:
            raise InputError(f"{name} must have ended to be resumed, and it runs")
        self._run(name, named(_form(folder), self.settings), folder)

    async def cancel(self, name: str) -> None:
        """End a study that runs or waits."""
        job = self.jobs.get(name)
        if job is None or job.state not in ACTIVE:
            raise InputError(f"{name} must run to be canceled")
        await job.cancel()

    async def close(self) -> None:
        """End every process."""
        active = [job for job in self.jobs.values() if job.state in ACTIVE]
        await asyncio.gather(*(job.cancel(_HASTE) for job in active))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def state(self, name: str) -> dict[str, Any]:
        """What a page shows of a study: of its job, or of what its folder holds."""
        folder = self.settings.study_folder(name)
        if folder is None:
            raise InputError(f"the app has no study {name!r}")
        if name in self.jobs:
            return self.jobs[name].to_json()
        empty = {"reason": "", "plan": [], "finished": [], "failures": []}
        stored = {**empty, "started": None, "progress": None, **_stored_state(folder)}
        if reason := _stored_reason(folder):
            stored.update(state="failed", reason=reason)
        if stored["state"] == "interrupted" and is_locked(folder):
            stored.update(state="running elsewhere", reason="", followed=True)
        return stored

    async def followed(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """The state of a folder now, and after each change as long as a monitor may write."""
        state: dict[str, Any] = {}
        while True:
            if (now := await asyncio.to_thread(self.state, name)) != state:
                yield (state := now)
            if not state.get("followed"):
                return
            await asyncio.sleep(_LOOK)

    def listing(self) -> list[dict[str, Any]]:
        """Every study, the newest first: name, title, date, models and state."""
        listed = []
        for name, folder in self.settings.study_folders().items():
            state, form = self.state(name), _title_and_models(folder)
            listed.append(
                {
                    "name": name,
                    "title": form.get("title") or printable(folder.resolve().name),
                    "date": _date(folder),
                    "models": form.get("models", ""),
                    "state": state["state"],
                    "results": len(state["finished"]),
                    "reason": state["reason"] if state["state"] in _BAD else "",
                    "resumable": self._is_resumable(folder),
                }
            )
        return sorted(listed, key=lambda study: study["date"], reverse=True)

    def _is_resumable(self, folder: Path) -> bool:
        """Whether the app made the folder of a study. Other folders are read only."""
        return folder not in self.settings.studies and (folder / REQUEST).is_file()

    def _run(self, name: str, request: Named, folder: Path) -> None:
        self.jobs[name] = job = Job(request, folder)

        async def in_turn() -> None:
            async with self._turn:
                if job.state in ACTIVE:
                    (folder / _FAILED).unlink(missing_ok=True)
                    await job.run()

        task = asyncio.get_running_loop().create_task(in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_BAD = ("failed", "unreadable")
_FAILURE = ("model", "analysis", "kind", "reason")
_FAILED = "failed.txt"  # in the folder of a study that failed: the reason


def _stored_state(folder: Path) -> dict[str, Any]:
    """The state of a study that no job runs, which may be somebody else's."""
    try:
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
    path = folder / _FAILED
    with suppress(OSError):
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                return printable(file.read(_LONGEST))[:_LONGEST]
    return ""


def _form(folder: Path) -> Form:
    return read_json(folder / REQUEST, Form, "the form of a study")


def _title_and_models(folder: Path) -> dict[str, str]:
    """As the form states them that a study was started with, if it can be read."""
    with suppress(InputError):
        form = _form(folder)
        models = ", ".join(m.name or m.checkpoint or "" for m in form.models)
        return {"title": printable(form.title or ""), "models": printable(models)[:_LONGEST]}
    return {}


def _date(folder: Path) -> str:
    """When a study was last written to, as 2026-03-01 12:30."""
    steps = [path / INDEX for path in steps_of_run(folder).values()]
    for path in (folder / INDEX, folder / REQUEST, *steps[-1:]):
        with suppress(OSError):
            written = datetime.fromtimestamp(path.stat().st_mtime)
            return f"{written:%Y-%m-%d %H:%M}"
    return ""
