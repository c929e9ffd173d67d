"""Wall time of each notebook in examples/, in a fresh process that draws to no window.

    python benchmarks/notebooks.py            # prints the table
    python benchmarks/notebooks.py --write    # and writes benchmarks/results/notebooks.json

Claim: each notebook ends in under a minute on two cores.
"""

import json
import os
import platform
import resource
import runpy
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from harness import options

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "notebooks.json"


def main() -> None:
    parser = options(__doc__, RESULTS)
    write = parser.parse_args().write
    lessons = runpy.run_path(str(ROOT / "docs" / "generators" / "notebooks.py"))["LESSONS"]
    rows = []
    for name in lessons:
        rows.append(timed(ROOT / "examples" / f"{name}.py"))
        print(*rows[-1].values(), flush=True)
    setting = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "visprism": version("visprism"),
        "date": datetime.now(UTC).date().isoformat(),
    }
    if write:
        RESULTS.write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


def timed(path: Path) -> dict[str, str | float]:
    """Seconds of one run, start of the process included."""
    cpu, wall = children_seconds(), time.perf_counter()
    with TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, str(path)],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "agg"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    wall = time.perf_counter() - wall
    return {
        "notebook": path.stem,
        "seconds": round(wall, 1),
        "cpu_seconds": round(children_seconds() - cpu, 1),
    }


def children_seconds() -> float:
    """CPU seconds of the processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
