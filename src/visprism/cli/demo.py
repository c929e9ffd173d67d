"""``visprism demo``: examine two small networks that ship trained, or train them first."""

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from visprism.cli.options import effort_option, json_option, out_options, seed_options
from visprism.cli.output import columns
from visprism.cli.values import minutes

if TYPE_CHECKING:
    from visprism.core.progress import StatusLine
    from visprism.core.run import Progress, Run
    from visprism.models import LoadedModel
    from visprism.study import Study

_IMAGES = 256


def demo(arguments: Namespace) -> int:
    """Examine the networks and print the table; with ``--train`` train them before."""
    from visprism.core.progress import StatusLine, console_progress

    status = StatusLine(arguments.begin)
    with console_progress(status) as progress:
        study = _examined(arguments, status, progress)
    from visprism.cli.output import exit_code, print_outcome

    print_outcome(study, arguments.out, as_json=arguments.json)
    return exit_code(study)


def _examined(arguments: Namespace, status: "StatusLine", progress: "Progress") -> "Study":
    """The study, whose files are written."""
    from visprism.analyses import ANALYSES
    from visprism.cli.study_commands import measurements_end, resumable
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.demo import SHIPPED
    from visprism.study import examine
    from visprism.study.console import study_listener
    from visprism.study.files import write_files
    from visprism.study.subjects import DataOptions

    origin = Provenance(command=arguments.command)
    run = Run(seed=arguments.seed, progress=progress, provenance=origin)
    with resumable(arguments.out):
        models, begin = dict(SHIPPED), arguments.begin
        if arguments.train:
            models, begin = _trained(arguments.out, run), time.monotonic()
        deadline = measurements_end(
            begin, arguments.minutes, models=len(models), analyses=len(ANALYSES.chosen(None))
        )
        study = examine(
            models,
            "shapes",
            effort=arguments.effort,
            minutes=arguments.minutes,
            images=DataOptions(limit=_IMAGES, batch_size=32),
            out=arguments.out,
            fresh=arguments.train,
            run=replace(run, deadline=deadline),
            listener=study_listener(status),
        )
        status.show(str)  # nothing is left to measure
        write_files(study, arguments.out, progress=progress)
    return study


def _trained(folder: Path, run: "Run") -> "dict[str, LoadedModel]":
    from visprism.demo import trained_networks

    networks = trained_networks(folder / "checkpoints", run=run)
    rows = [
        (n.name, f"{n.before:.1%}", f"{n.after:.1%}", f"{n.images}", f"{n.seconds:.0f} s")
        for n in networks
    ]
    header = ["network", "accuracy before", "after", "training images", "time"]
    print(columns(header, rows), file=sys.stderr)
    return {n.name: n.network for n in networks}


def add(to: ArgumentParser) -> None:
    """The arguments of ``demo``."""
    out_options(to, default=Path("demo"))
    seed_options(to)
    to.add_argument(
        "--train",
        action="store_true",
        help="train the networks first, which takes about two minutes (default: use the "
        "weights inside the package)",
    )
    effort_option(to, "quick")
    to.add_argument(
        "--minutes",
        type=minutes,
        metavar="N",
        help="time limit in minutes, figures and report included, training not (default: none)",
    )
    json_option(to, "answers, findings and failures")
    to.set_defaults(run=demo)
