"""What benchmarks share: ways that take turns, medians, where numbers are from, `--write`."""

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from visprism.core.provenance import revision

RESULTS = Path(__file__).parent / "results"


def options(doc: str, results: Path | None = None, **numbers: int) -> argparse.ArgumentParser:
    """The arguments of a benchmark: `--write` where it has results, and numbers by name."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, default in numbers.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, metavar="N"
        )
    if results is not None:
        parser.add_argument("--write", action="store_true", help=f"write {results.name}")
    return parser


def made_with(*packages: str, **values: Any) -> dict[str, Any]:
    """The machine, the settings in `values`, versions, commit and date."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "machine": f"{os.cpu_count()}-core {platform.machine()} CPU, {capability}",
        "threads": torch.get_num_threads(),
        **values,
        "versions": {
            **{name: version(name) for name in ("visprism", "torch", *packages)},
            "python": platform.python_version(),
        },
        "commit": revision(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(path: Path, setting: Mapping[str, Any], rows: Sequence[Any], **more: Any) -> None:
    """Write rows and how they were made as JSON."""
    path.parent.mkdir(exist_ok=True)
    content = {"setting": setting, "rows": rows, **more}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def seconds_of(
    run: Callable[[], object], clock: Callable[[], float] = time.process_time
) -> float:
    """Seconds of one call; by default of the processor, of all threads together."""
    begin = clock()
    run()
    return clock() - begin


def in_turns(
    ways: Mapping[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
    warm: int = 1,
) -> dict[str, list[float]]:
    """Seconds of each repeat of each way; they take turns, so other work hits them alike."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(warm + repeats):
        for way, run in ways.items():
            seconds = seconds_of(run, clock)
            if repeat >= warm:
                taken[way].append(seconds)
    return taken


def medians(taken: Mapping[str, Iterable[float]]) -> dict[str, float]:
    """The median of each way."""
    return {way: median(seconds) for way, seconds in taken.items()}


def peak() -> float:
    """The most memory that the process has had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
