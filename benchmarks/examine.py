"""How long `visprism examine` takes with default options: planned and actual, by analysis.

Each case is a study in a fresh process, as a user runs it: planning, measuring, figures and
page. Run it on a quiet machine; the plan is made from passes that are timed there and then.

    python benchmarks/examine.py                          # prints the tables
    python benchmarks/examine.py --images folder:DIR      # photographs for the 224x224 case
    python benchmarks/examine.py --write                  # and writes results/examine.json

Claim: the measurements end within the budget of `minutes`, here the default of 2 minutes, by
10% and one forward pass.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import made_with

RESULTS = Path(__file__).parent / "results" / "examine.json"


@dataclass(frozen=True)
class Case:
    """One study."""

    models: tuple[str, ...]
    data: str
    limit: int
    named: bool = False  # name all default analyses, so that random weights do not matter


def cases(images: str) -> dict[str, Case]:
    """The networks of the demo, and two at 224x224 with random weights.

    Analyses that need trained weights run on the second pair only where they are named.
    """
    large = ("timm:resnet18", "timm:vit_tiny_patch16_224")
    return {
        "demo": Case(("resnet20.shapes", "vit_pico_patch4_32.shapes"), "shapes", 256),
        "224": Case(large, images, 200),
        "224-named": Case(large, images, 200, named=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", default="shapes?size=224", help="data of the 224x224 case")
    parser.add_argument("--minutes", type=float, default=2.0)
    names = list(cases(""))
    parser.add_argument("--cases", nargs="+", default=names, choices=names)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        case = cases(arguments.images)[arguments.child]
        print(json.dumps(measured(case, arguments.minutes)))
        return
    rows = {name: in_fresh_process(name, arguments) for name in arguments.cases}
    for name, row in rows.items():
        print_table(name, row)
    if arguments.write:
        content = json.dumps({"setting": setting(arguments), "cases": rows}, indent=1)
        # A result names a folder of images, not where it lies on this machine.
        RESULTS.write_text(content.replace(arguments.images, named(arguments.images)) + "\n")
        print(f"wrote {RESULTS}")


def named(images: str) -> str:
    """The data without the folders above it: ``folder:photos/val``."""
    source, _, path = images.partition(":")
    return f"{source}:{'/'.join(Path(path).parts[-2:])}" if path else images


def in_fresh_process(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--child", name]
    command += ["--images", arguments.images, "--minutes", str(arguments.minutes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    row = json.loads(done.stdout.splitlines()[-1])
    return {**row, "process_seconds": time.perf_counter() - begin}


def measured(case: Case, minutes: float) -> dict[str, Any]:
    """Planned and actual seconds of each step of a study, and of its files."""
    from visprism import ANALYSES, examine
    from visprism.study.events import Event, Finished, Planned
    from visprism.study.files import write_files

    plans, seconds = [], dict[tuple[str, ...], dict[str, float]]()

    def listen(event: Event) -> None:
        if isinstance(event, Planned):
            plans.append(event.plan)
        if isinstance(event, Finished):
            seconds.setdefault((event.entry.analysis,), {})["-".join(event.entry.models)] = (
                event.entry.seconds
            )

    with TemporaryDirectory() as folder:
        begin = time.perf_counter()
        study = examine(
            list(case.models),
            case.data,
            analyses=[n for n in ANALYSES if ANALYSES[n].default] if case.named else None,
            minutes=minutes,
            limit=case.limit,
            out=Path(folder),
            listener=listen,
        )
        measuring = time.perf_counter() - begin
        write_files(study, Path(folder))
        writing = time.perf_counter() - begin - measuring
    (plan,) = plans
    steps = []
    for step in plan.steps:
        entries = [e for e in study.entries if e.analysis in {a.name for a in step.analyses}]
        steps.append(
            {
                "analyses": [a.name for a in step.analyses],
                "planned_images": step.images,
                "images": max((e.images for e in entries), default=0),
                "planned_seconds": dict(step.seconds),
                # Analyses that share a pass carry the seconds of the pass, each of them.
                "seconds": {
                    name: max(e.seconds for e in entries if e.models == (name,))
                    for name in study.models
                    if any(e.models == (name,) for e in entries)
                },
                "comparing_seconds": sum(e.seconds for e in entries if len(e.models) > 1),
            }
        )
    return {
        "models": list(case.models),
        "data": case.data,
        "limit": case.limit,
        "budget_seconds": 60 * minutes,
        "planned_seconds": plan.seconds,
        "steps": steps,
        "failures": [vars(f) for f in study.failures],
        "measuring_seconds": measuring,
        "writing_seconds": writing,
    }


def print_table(name: str, row: dict[str, Any]) -> None:
    print(f"\n{name}: {', '.join(row['models'])}; {row['data']}, {row['limit']} images")
    print(f"{'step':<60} {'images':>7} {'planned':>9} {'actual':>9} {'pairs':>7}")
    for step in row["steps"]:
        planned, actual = (sum(step[k].values()) for k in ("planned_seconds", "seconds"))
        label = ", ".join(step["analyses"])
        label = label if len(label) <= 60 else f"{label[:57]}..."
        print(
            f"{label:<60} {step['images']:>7} {planned:>7.1f} s {actual:>7.1f} s "
            f"{step['comparing_seconds']:>5.1f} s"
        )
    for failure in row["failures"]:
        print(f"not measured: {failure['analysis']}, {failure['model']}: {failure['reason']}")
    print(
        f"planned {row['planned_seconds']:.0f} s, measured {row['measuring_seconds']:.1f} s of "
        f"{row['budget_seconds']:.0f} s, figures and page {row['writing_seconds']:.1f} s, "
        f"process {row['process_seconds']:.1f} s"
    )


def setting(arguments: argparse.Namespace) -> dict[str, Any]:
    """Where the numbers are from."""
    return made_with(
        **{package: version(package) for package in ("torch", "timm", "visprism")},
        command=f"python benchmarks/examine.py --images {arguments.images}",
    )


if __name__ == "__main__":
    main()
