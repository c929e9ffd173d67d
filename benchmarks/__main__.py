"""Every claim about speed, measured once: one table of ratios beside their targets.

    python benchmarks            # as the results of the docs were made; hours
    python benchmarks --quick    # few images and repeats; minutes, numbers are rough

Each script runs in a process of its own and stands alone, too. The results of scripts are not
overwritten: `--write` stores this table, with the commit, as results/claims_of_speed.json.
Rows beside a peer need the peer to be installed; a script that fails gives its reason.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "claims_of_speed.json"
Rows = Iterator[tuple[str, float]]


@dataclass(frozen=True)
class Benchmark:
    """A script, and the ratios that are read from what it writes."""

    script: str
    quick: tuple[str, ...]  # arguments of a quick run
    unit: str  # of the ratio
    target: str
    ratios: Callable[[dict[str, Any]], Rows]


@dataclass(frozen=True)
class Claim:
    """One ratio of one script."""

    script: str
    case: str
    ratio: float
    unit: str
    target: str


def _ratio(content: dict[str, Any]) -> Rows:
    yield from ((row["model"], row["ratio"]) for row in content["rows"])


def _observe(content: dict[str, Any]) -> Rows:
    for row in content["rows"]:
        yield f"{row['model']}, all probes", row["ratio"]["all"]


def _yardsticks(content: dict[str, Any]) -> Rows:
    for row in content["rows"]:
        if "yardsticks" in row:
            yield f"{row['model']}, {row['way']}", row["yardsticks"]


def _attention(content: dict[str, Any]) -> Rows:
    ways = {(row["block"], row["way"]): row["seconds"] for row in content["rows"]}
    for block, way in ways:
        if way == "visprism" and (block, "timm's Swin block") in ways:
            yield block, ways[block, "timm's Swin block"] / ways[block, way]


def _over_forward(content: dict[str, Any]) -> Rows:
    for row in content["rows"]:
        if row["way"].startswith("visprism"):
            yield f"{row['model']}, {row['way']}", row["over forward"]


def _lesions(content: dict[str, Any]) -> Rows:
    yield from ((row["model"], row["naive"] / row["study"]) for row in content["rows"])


def _cka(content: dict[str, Any]) -> Rows:
    seconds = {row["way"]: row["seconds"] for row in content["rows"]}
    yield "61 layers of ResNet-20", seconds["visprism"] / seconds["forward"]


def _metrics(content: dict[str, Any]) -> Rows:
    seconds = {row["way"]: row["seconds"] for row in content["rows"]}
    yield "every metric", seconds["torchmetrics, 3"] / seconds["one pass"]


def _training(content: dict[str, Any]) -> Rows:
    for row in content["rows"]:
        if row["way"].startswith("visprism"):
            yield f"{row['model']}, {row['way']}", row["over_reference"]


BENCHMARKS = (
    Benchmark(
        "evaluate",
        ("--images", "256", "--rounds", "3", "--models", "resnet20.cifar10", "timm:resnet18"),
        "seconds over those of the best plain loop",
        "at most 1.1",
        _ratio,
    ),
    Benchmark(
        "observe",
        ("--repeats", "2", "--models", "vit_tiny_patch16_224"),
        "seconds over those of a forward pass",
        "at most 1.4",
        _observe,
    ),
    Benchmark(
        "receptive_field",
        ("--repeats", "1", "--models", "resnet18"),
        "forward passes",
        "at most 4",
        _ratio,
    ),
    Benchmark(
        "curvature",
        ("--repeats", "1", "--models", "resnet20"),
        "seconds over those of the yardstick",
        "at most 1.3 (ResNet-20), 1.5 (ViT-Ti)",
        _yardsticks,
    ),
    Benchmark(
        "attention",
        ("--repeats", "3"),
        "seconds of timm's Swin block over ours",
        "at least 1.0",
        _attention,
    ),
    Benchmark(
        "landscape",
        ("--images", "100", "--points", "3", "--repeats", "1", "--models", "ResNet-20"),
        "seconds of a point over those of a forward pass",
        "at most 1.1",
        _over_forward,
    ),
    Benchmark(
        "lesions",
        ("--images", "2", "--repeats", "1", "--models", "vit_tiny_patch16_224"),
        "seconds of full passes over ours",
        "at least 1.8",
        _lesions,
    ),
    Benchmark(
        "cka",
        ("--images", "200", "--repeats", "1"),
        "seconds over those of a forward pass",
        "at most 3",
        _cka,
    ),
    Benchmark(
        "metrics",
        ("--images", "20000", "--repeats", "3"),
        "seconds of three metrics of torchmetrics over ours",
        "at least 10",
        _metrics,
    ),
    Benchmark(
        "training",
        ("--steps", "2"),
        "images per second over the reference's",
        "at least 1.0",
        _training,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="few images and repeats")
    parser.add_argument("--only", nargs="+", choices=[b.script for b in BENCHMARKS])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--script", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.script:
        run_here(arguments.script, arguments.into, rest)
        return
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    claims, seconds = [], {}
    for benchmark in BENCHMARKS:
        if arguments.only and benchmark.script not in arguments.only:
            continue
        begin = time.monotonic()
        made = list(claims_of(benchmark, quick=arguments.quick))
        seconds[benchmark.script] = round(time.monotonic() - begin, 1)
        claims += made
        print_claims(made)
    print(f"{sum(seconds.values()):.0f} s in all")
    if arguments.write:
        content = {
            "setting": setting(quick=arguments.quick),
            "seconds": seconds,
            "claims": [asdict(claim) for claim in claims],
        }
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def claims_of(benchmark: Benchmark, *, quick: bool) -> Iterator[Claim]:
    """The ratios of one script, which runs in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "results.json"
        command = [
            sys.executable,
            str(FOLDER),
            "--script",
            benchmark.script,
            "--into",
            str(into),
        ]
        process = subprocess.run(
            [*command, *(benchmark.quick if quick else ())],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            last = (process.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{benchmark.script}: failed, {last}", flush=True)
            return
        content = json.loads(into.read_text("utf-8"))
    for case, ratio in benchmark.ratios(content):
        yield Claim(benchmark.script, case, ratio, benchmark.unit, benchmark.target)


def run_here(script: str, into: Path, arguments: list[str]) -> None:
    """Run a script, and have it write to another file than the results of the docs."""
    module = importlib.import_module(script)  # beside this file
    vars(module)["RESULTS"] = into
    sys.argv = [f"{script}.py", *arguments, "--write"]
    module.main()


def print_claims(claims: list[Claim]) -> None:
    for claim in claims:
        print(
            f"{claim.script:<16}{claim.case:<46}{claim.ratio:>7.2f}  {claim.unit} "
            f"({claim.target})",
            flush=True,
        )


def setting(*, quick: bool) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "quick": quick,
        "machine": f"{os.cpu_count()}-core {platform.machine()} CPU",
        "load": round(os.getloadavg()[0], 2),
        "versions": {name: version(name) for name in ("visprism", "torch", "timm")},
        "python": platform.python_version(),
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
    }


if __name__ == "__main__":
    main()
