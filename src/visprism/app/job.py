"""A job: one study, or the plan of one, that runs in a separate process, and its state."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["waiting", "running", "complete", "failed", "canceled", "interrupted"]

_PATIENCE = 10.0  # seconds that a canceled process has to end
HASTE = 1.5  # and where the app ends with it
_LINE = 2**22  # bytes of the longest event
ACTIVE = frozenset({"waiting", "running"})


@dataclass(eq=False)
class Job:
    """The state of one study, and the process that runs it."""

    request: Mapping[str, Any]
    folder: Path | None  # None: only the plan is made
    state: State = "waiting"
    reason: str = ""
    plan: list[str] = field(default_factory=list)
    seconds: float | None = None  # expected
    finished: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    started: dict[str, Any] | None = None  # the analysis that runs
    progress: dict[str, Any] | None = None
    revision: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    _canceled: bool = False

    async def run(self) -> None:
        """Run the study in a process; its end is the end of the job, whatever it is."""
        if self._canceled:
            self._end("canceled", "")
            return
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "visprism.app.study_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        folder = None if self.folder is None else str(self.folder)
        line = json.dumps({"request": self.request, "folder": folder}) + "\n"
        self.state = "running"
        self._change()
        try:
            process.stdin.write(line.encode())
            with suppress(ConnectionError):
                await process.stdin.drain()
            async for event in process.stdout:
                self._record(json.loads(event))
            await process.wait()
        finally:
            await self._terminate()
        if self.state in ACTIVE:
            state = "canceled" if self._canceled else "failed"
            complete = self.folder is None and self.plan and not self._canceled
            reason = "" if complete or self._canceled else _reason_of_end(process.returncode)
            self._end("complete" if complete else state, reason)

    async def cancel(self, patience: float = _PATIENCE) -> None:
        """End the job; the results that exist stay, so that it can be resumed."""
        self._canceled = True
        if self.state == "waiting":
            self._end("canceled", "")
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await self._terminate(patience)

    async def _terminate(self, patience: float = _PATIENCE) -> None:
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

    def _record(self, event: dict[str, Any]) -> None:
        values = event["values"]
        match event["event"]:
            case "planned":
                self.plan, self.seconds = values["lines"], values["seconds"]
            case "started":
                self.started, self.progress = values, None
            case "finished":
                self.finished.append(values)
            case "stopped":
                self.failures.append(values)
            case "progress":
                self.progress = values
            case "ended":
                self._end(values["state"], values["reason"])
                return
        self._change()

    def _end(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        self.started = self.progress = None
        self._change()

    def _change(self) -> None:
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def to_json(self) -> dict[str, Any]:
        """What a page shows of the job."""
        return {
            "state": self.state,
            "reason": self.reason,
            "plan": self.plan,
            "seconds": self.seconds,
            "finished": self.finished,
            "failures": self.failures,
            "started": self.started,
            "progress": self.progress,
            "revision": self.revision,
        }

    async def changes(self) -> AsyncIterator[dict[str, Any]]:
        """The state now and after each change, until the job has ended."""
        while True:
            changed, state = self._changed, self.to_json()
            yield state
            if state["state"] not in ACTIVE:
                return
            if self.revision == state["revision"]:
                await changed.wait()


def _reason_of_end(code: int | None) -> str:
    """What is known of a process that ended without a word."""
    if code == -signal.SIGKILL:
        return "the system ended the process of the study, perhaps for lack of memory"
    return f"the process of the study ended with code {code}; the terminal shows why"
