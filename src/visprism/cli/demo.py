"""``visprism demo``: train two small networks, examine both, and show where the report lies."""

from argparse import Namespace

from visprism.cli.text import columns, verdicts


def demo(arguments: Namespace) -> None:
    """Print how well each network learned, what was found, and where the report lies."""
    from visprism.cli.progress import progress_shown
    from visprism.examine import output_folder, write_figures, write_report, write_tables
    from visprism.examine.demo import train_and_examine

    with output_folder(arguments.out) as folder, progress_shown() as progress:
        learned, examinations = train_and_examine(
            folder, seed=arguments.seed, command=arguments.command, progress=progress
        )
        for write in progress((write_tables, write_figures, write_report), "figures, tables"):
            write(examinations, folder)
    rows = [
        (each.name, f"{each.before:.0%}", f"{each.after:.0%}", f"{each.seconds:.0f} s")
        for each in learned
    ]
    print(columns(["network", "accuracy before", "after training", "in"], rows))
    print(verdicts(examinations))
    print(f"Written, look at {arguments.out / 'report.html'}")
