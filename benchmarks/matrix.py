"""The tests on every kind of machine that one machine can imitate.

    python benchmarks/matrix.py [--only NAME ...] [--list]

A cell is one run of the quick tests: kernels (default, AVX2, and other rounding as of
tests/shared/other_kernels.py), threads, interpreters with the newest and the oldest packages,
and random order. The first kinds run in the interpreter of this script; the others get an
environment from uv. The script merges the table into benchmarks/results/matrix.json.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "matrix.json"
ENVIRONMENTS = Path("/var/tmp/visprism-matrix")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
PACKAGES = {"newest": "highest", "oldest": "lowest-direct"}
OLDEST = ("torch==2.9.*", "torchvision==0.24.*")


@dataclass(frozen=True)
class Cell:
    """One run of the tests."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    python: str = ""
    packages: str = "newest"


def cells() -> Iterator[Cell]:
    """All cells that this machine has an interpreter for."""
    for threads in ("1", "2", "4"):
        variables = {"OMP_NUM_THREADS": threads}
        yield Cell(f"default kernels, {threads} threads", variables)
        yield Cell(f"AVX2, {threads} threads", variables | AVX2)
    for salt in ("1", "2"):
        variables = ONE_THREAD | {"OTHER_KERNELS": salt}
        yield Cell(f"other rounding {salt}", variables, ("-p", "other_kernels"))
    for version in PYTHONS:
        python = shutil.which(f"python{version}") or ""
        for packages in PACKAGES if python else ():
            yield Cell(f"Python {version}, {packages}", ONE_THREAD, (), python, packages)
    yield Cell("random order", ONE_THREAD, ("-p", "randomly"), sys.executable)


def interpreter(cell: Cell) -> str:
    """The interpreter of a cell, in an environment that is made for it."""
    if not cell.python:
        return sys.executable
    folder = ENVIRONMENTS / re.sub(r"\W+", "-", cell.name)
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--clear", "--python", cell.python, folder], check=True)
    install = [uv, "pip", "install", "-q", "--python", python, "--editable", str(ROOT)]
    install += ["--group", f"{ROOT / 'pyproject.toml'}:dev", "pytest-randomly"]
    if cell.packages == "oldest":
        install += ["--no-config", "--resolution", PACKAGES[cell.packages], *OLDEST]
    subprocess.run(install, check=True)
    return python


def attempt(cell: Cell) -> dict[str, object]:
    """Run the quick tests in a cell."""
    command = [interpreter(cell), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    command += ["-m", "not slow and not sweep"]
    # Old packages warn of newer ones that they require.
    command += ["-o", "filterwarnings=default"] * (cell.packages == "oldest")
    if "randomly" not in cell.options:
        command += ["-p", "no:randomly", *cell.options]
    path = os.pathsep.join([str(ROOT / "tests" / "shared"), str(ROOT / "src")])
    variables = {**os.environ, "PYTHONPATH": path, **cell.variables}
    start = time.perf_counter()
    answer = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    lines = answer.stdout.strip().splitlines() or [answer.stderr[-500:]]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", lines[-1])}
    return {
        "cell": cell.name,
        "passed": counts.get("passed", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0),
        "seconds": round(time.perf_counter() - start),
        "exit": answer.returncode,
        "failures": [line for line in lines if line.startswith(("FAILED", "ERROR"))],
    }


def main() -> int:
    """Run the chosen cells and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of cells")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    code = 0
    for cell in cells():
        if not any(part in cell.name for part in options.only):
            continue
        if options.list:
            print(cell.name)
            continue
        row = attempt(cell)
        code = code or row["exit"]
        rows = [r for r in rows if r["cell"] != cell.name] + [row]
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
        counts = f"{row['passed']:5} passed {row['failed']:3} failed {row['seconds']:5} s"
        print(f"{cell.name:28} {counts}", row["failures"])
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main())
