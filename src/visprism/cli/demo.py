"""``visprism demo``: examine two small networks that ship trained, or train them first."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from visprism.cli.options import json_option, out_options, seed_options
from visprism.cli.output import columns
from visprism.cli.values import minutes
from visprism.core.errors import InputError, OutputError

if TYPE_CHECKING:
    from visprism.core.run import Run
    from visprism.models import LoadedModel

_IMAGES = 256


def demo(arguments: Namespace) -> int:
    """Examine the networks and print the table; with ``--train`` train them before."""
    from visprism.cli.output import exit_code, print_study
    from visprism.cli.study_commands import stored_results
    from visprism.core.progress import console_progress
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.demo import SHIPPED
    from visprism.study import examine
    from visprism.study.console import print_event
    from visprism.study.exports import json_of
    from visprism.study.files import write_files
    from visprism.study.subjects import DataOptions

    try:
        with console_progress() as progress:
            origin = Provenance(command=arguments.command)
            run = Run(seed=arguments.seed, progress=progress, provenance=origin)
            models = _trained(arguments.out, run) if arguments.train else dict(SHIPPED)
            study = examine(
                models,
                "shapes",
                minutes=arguments.minutes,
                images=DataOptions(limit=_IMAGES, batch_size=32),
                out=arguments.out,
                fresh=arguments.train,
                run=run,
                listener=print_event,
            )
            write_files(study, arguments.out)
    except KeyboardInterrupt as interruption:
        raise KeyboardInterrupt(stored_results(arguments.out)) from interruption
    except OutputError as error:
        raise InputError(f"{error} So far, {stored_results(arguments.out)}.") from error
    if arguments.json:
        print(json_of(study), end="")
    else:
        print_study(study)
        print(f"Wrote {arguments.out / 'report.html'}")
    return exit_code(study)


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
    to.add_argument(
        "--minutes",
        type=minutes,
        default=0.6,
        metavar="N",
        help="time budget of the measurements in minutes (default: 0.6)",
    )
    json_option(to, "answers, findings and failures")
    to.set_defaults(run=demo)
