"""``visprism demo``: train two small networks, examine both, say where the report lies."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from visprism.cli.options import out_options, seed_options
from visprism.cli.text import columns, verdicts

if TYPE_CHECKING:
    from visprism.cli.commands import Commands


def demo(arguments: Namespace) -> None:
    """Print how well each network learned, what was found, and where the report lies."""
    from visprism.cli.progress import progress_shown
    from visprism.demo import demo
    from visprism.examine import output_folder, write_figures, write_report, write_tables

    with output_folder(arguments.out) as folder, progress_shown() as progress:
        learned, examinations = demo(
            folder, progress=progress, seed=arguments.seed, command=arguments.command
        )
        for write in progress(
            (write_tables, write_figures, write_report), "figures and tables"
        ):
            write(examinations, folder)
    rows = [
        (
            each.network.label,
            f"{each.before:.1%}",
            f"{each.after:.1%}",
            f"{each.images} images in {each.seconds:.0f} s",
        )
        for each in learned
    ]
    print(columns(["network", "accuracy before", "after", "training"], rows))
    print(f"\n{verdicts(examinations)}\n")
    print(f"Written, look at {arguments.out / 'report.html'}")


def add_commands(commands: "Commands") -> None:
    """``demo``."""
    tour = commands.add("demo", demo, "train two small networks on shapes and examine both")
    out_options(tour, default=Path("demo"))
    seed_options(tour)
