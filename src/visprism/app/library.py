"""The studies that the app shows, and the jobs that run them, each in a separate process."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from visprism.app.forms import Form, Named, named, stated
from visprism.app.listing import FAILED, Listing, form_of, stored_state
from visprism.app.settings import REQUEST, Settings
from visprism.core.errors import InputError, OutputError
from visprism.core.files import write_text

State = Literal["waiting", "running", "complete", "failed", "canceled"]
ACTIVE = frozenset({"waiting", "running"})
_PATIENCE = 10.0  # seconds that a canceled process has to end
_HASTE = 1.5  # and where the app ends with it
_LOOK = 2.0  # seconds between looks at a folder that a monitor writes to
_LINE = 2**22  # bytes of the longest event
_ENDED = 50  # jobs that have ended, which are kept with their plans


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
                write_text(self.folder / FAILED, reason)
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
    listing: Listing = field(init=False)
    jobs: dict[str, Job] = field(default_factory=dict)
    _tasks: set[asyncio.Task] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.listing = Listing(self.settings)

    def start(self, values: Mapping[str, Any]) -> str:
        """Start a study in a new folder of the workspace; returns its name.

        The folder keeps the form, which is checked again when the study is resumed.
        """
        form = stated(Form, values)
        request = named(form, self.settings)
        self._check_queue()
        name, folder = self.listing.new_folder(str(request.title))
        stored = msgspec.structs.replace(form, title=request.title)
        write_text(folder / REQUEST, msgspec.json.encode(stored).decode())
        self._run(name, request, folder)
        return name

    async def resume(self, name: str) -> None:
        """Run a study of this app again from where it ended."""
        folder = await self.listing.folder(name)
        if folder is None or not self.listing.is_resumable(folder):
            raise InputError(f"{name} must be a study of this app to be resumed")
        if name in self.jobs and self.jobs[name].state in ACTIVE:
            raise InputError(f"{name} must have ended to be resumed, and it runs")
        self._check_queue()
        self._run(name, named(form_of(folder), self.settings), folder)

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

    async def state(self, name: str) -> dict[str, Any]:
        """What a page shows of a study: of its job, or of what its folder holds."""
        folder = await self.listing.folder(name)
        if name in self.jobs and folder is not None:
            return self.jobs[name].to_json()
        if folder is None:
            raise InputError(f"the app has no study {name!r}")
        return await asyncio.to_thread(stored_state, folder)

    async def followed(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """The state of a folder now, and after each change as long as a monitor may write."""
        folder = await self.listing.folder(name)
        state: dict[str, Any] = {}
        while folder is not None:
            if (now := await asyncio.to_thread(stored_state, folder)) != state:
                yield (state := now)
            if not state.get("followed"):
                return
            await asyncio.sleep(_LOOK)

    async def studies(self) -> list[dict[str, Any]]:
        """Every study, the newest first: name, title, date, models and state."""
        return list(map(self._with_job, await self.listing.entries()))

    async def study(self, folder: Path) -> dict[str, Any]:
        """What the list shows of one study."""
        return self._with_job(await self.listing.entry(folder))

    def _with_job(self, entry: dict[str, Any]) -> dict[str, Any]:
        job = self.jobs.get(entry["name"])
        if job is None:
            return entry
        state = {"state": job.state, "results": len(job.finished), "reason": job.reason}
        return entry | state

    def _check_queue(self) -> None:
        most = self.settings.limits.waiting
        if sum(job.state in ACTIVE for job in self.jobs.values()) >= most:
            raise InputError(
                f"studies that run or wait must be at most {most}. Start it later."
            )

    def _run(self, name: str, request: Named, folder: Path) -> None:
        for other in [n for n, job in self.jobs.items() if job.state not in ACTIVE][:-_ENDED]:
            del self.jobs[other]  # its folder holds what a page shows
        self.jobs[name] = job = Job(request, folder)

        async def in_turn() -> None:
            async with self._turn:
                if job.state in ACTIVE:
                    (folder / FAILED).unlink(missing_ok=True)
                    await job.run()

        task = asyncio.get_running_loop().create_task(in_turn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
