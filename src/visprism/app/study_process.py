"""The process of a study: reads a request from its input, writes events as lines of JSON.

``python -m visprism.app.study_process``: the first line of the input is the request. The
process ends when its input does, so that it never outlives the server.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from visprism.core.interruption import ignore_signals, on_interruption, watch_signals

_NICENESS = 5
_SECONDS = 0.3  # between two lines about progress

Write = Callable[..., None]


def main() -> None:
    """Run the study of the first line of the input."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no event

    def write(event: str, /, **values: Any) -> None:
        lines.write(json.dumps({"event": event, "values": values}) + "\n")
        lines.flush()

    values = json.loads(sys.stdin.readline())
    _settle()
    watch_signals()
    threading.Thread(target=_end_with_input, daemon=True).start()
    with suppress(BrokenPipeError), on_interruption(lambda: "what is complete is stored"):
        _perform(values, write)
    ignore_signals()


def _settle() -> None:
    """Leave the processor to live panels; a study may take more memory than the server."""
    if sys.platform == "win32":
        return
    import resource

    os.nice(_NICENESS)
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _end_with_input() -> None:
    """End this process as Ctrl-C does once the server closes the input, or is gone.

    It reads the descriptor: a thread in ``sys.stdin.read`` holds a lock that a forked process,
    which closes ``sys.stdin`` as it begins, would wait for without end.
    """
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def _perform(values: dict[str, Any], write: Write) -> None:
    from visprism.core.errors import InputError, OutputError, shortage

    try:
        _examine(values, write)
    except KeyboardInterrupt:
        write("ended", state="canceled", reason="")
    except (InputError, OutputError, OSError) as error:
        write("ended", state="failed", reason=str(error))
    except Exception as error:  # a bug: its traceback is for the terminal
        if not (reason := shortage(error)):
            traceback.print_exc()
        write("ended", state="failed", reason=reason or f"{type(error).__name__}: {error}")
    else:
        write("ended", state="complete", reason="")


def _examine(values: dict[str, Any], write: Write) -> None:
    from visprism.app.forms import Named, parsed_analyses, stated
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.study.events import Event, Finished, Planned, Started, Stopped
    from visprism.study.examine import examine
    from visprism.study.files import write_files

    request = stated(Named, values["request"])

    def listen(event: Event) -> None:
        match event:
            case Planned(plan, preparation):
                write("planned", lines=[*preparation, *plan.lines()])
            case Started(model, analyses, images, _, _):
                write("started", model=model, analyses=list(analyses), images=images)
            case Finished(entry, resumed):
                write(
                    "finished",
                    models=list(entry.models),
                    analysis=entry.analysis,
                    seconds=entry.seconds,
                    resumed=resumed,
                )
            case Stopped(failure):
                write("stopped", **vars(failure))

    def progress(items: Iterable, label: str) -> Iterator:
        return _reported(items, label, write)

    origin = Provenance(command=f"visprism view (study {request.title})")
    options = request.chosen()
    study = examine(
        request.models,
        request.data,
        analyses=request.analyses,
        options=parsed_analyses(request.analyses, request.options),
        out=Path(values["folder"]),
        run=Run(seed=options.pop("seed"), progress=progress, provenance=origin),
        listener=listen,
        **options,
    )
    write_files(study, Path(values["folder"]), progress=progress)


def _reported(items: Iterable, label: str, write: Write) -> Iterator:
    """The items, with a line about them a few times per second."""
    total = len(items) if hasattr(items, "__len__") else None  # pyrefly: ignore
    written = 0.0
    for done, item in enumerate(items):
        if time.monotonic() - written > _SECONDS:
            written = time.monotonic()
            write("progress", label=label, done=done, total=total)
        yield item


if __name__ == "__main__":
    main()
