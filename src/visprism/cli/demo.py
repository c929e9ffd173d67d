"""``visprism demo``: examine two small networks that ship trained, or train them first."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from visprism.cli.options import out_options, seed_options
from visprism.cli.text import columns
from visprism.cli.values import minutes


def demo(arguments: Namespace) -> int:
    """Examine the networks and print the table; with ``--train`` train them before."""
    from visprism.cli.progress import progress_shown
    from visprism.cli.study_commands import print_event, print_study
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.demo import SHIPPED, trained_networks
    from visprism.study import examine
    from visprism.study.files import write_files
    from visprism.study.subjects import DataOptions

    with progress_shown() as progress:
        run = Run(
            seed=arguments.seed,
            progress=progress,
            provenance=Provenance(command=arguments.command),
        )
        if arguments.train:
            networks = trained_networks(arguments.out / "checkpoints", run=run)
            rows = [
                (
                    n.name,
                    f"{n.before:.1%}",
                    f"{n.after:.1%}",
                    f"{n.images} in {n.seconds:.0f} s",
                )
                for n in networks
            ]
            header = ["network", "accuracy before", "after", "training images"]
            print(columns(header, rows))
            models = {n.name: n.network for n in networks}
        else:
            models = dict(SHIPPED)
        study = examine(
            models,
            "shapes",
            minutes=arguments.minutes,
            images=DataOptions(limit=256, batch_size=32),
            out=arguments.out,
            fresh=arguments.train,
            run=run,
            listener=print_event,
        )
        write_files(study, arguments.out)
    print_study(study)
    print(f"Wrote {arguments.out / 'report.html'}")
    return int(any(failure.kind == "failed" for failure in study.failures))


def add(to: ArgumentParser) -> None:
    """The arguments of ``demo``."""
    out_options(to, default=Path("demo"))
    seed_options(to)
    to.add_argument(
        "--train", action="store_true", help="train the networks first (about two minutes)"
    )
    to.add_argument(
        "--minutes",
        type=minutes,
        default=0.6,
        metavar="N",
        help="time budget of the measurements in minutes (default: 0.6)",
    )
    to.set_defaults(run=demo)
