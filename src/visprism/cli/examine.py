"""``visprism examine`` and each analysis alone: measure, write, say what was found."""

from argparse import Namespace
from collections.abc import Callable, Sequence

from visprism.cli.text import verdicts


def examine(arguments: Namespace) -> None:
    """Every analysis, and a report."""
    from visprism.examine import write_figures, write_report, write_tables

    writers = (write_tables, write_figures, write_report)
    analyses = ("fourier", "variance", "attention", "receptive-field")
    _measure(arguments, analyses, writers, look="report.html")


def fourier(arguments: Namespace) -> None:
    """The Fourier analysis alone."""
    from visprism.examine import write_figures, write_tables

    _measure(arguments, ("fourier",), (write_tables, write_figures), look="figures")


def variance(arguments: Namespace) -> None:
    """The variance of feature maps alone."""
    from visprism.examine import write_figures, write_tables

    _measure(arguments, ("variance",), (write_tables, write_figures), look="figures")


def attention(arguments: Namespace) -> None:
    """The statistics of attention alone."""
    from visprism.examine import write_figures, write_tables

    _measure(arguments, ("attention",), (write_tables, write_figures), look="figures")


def receptive_field(arguments: Namespace) -> None:
    """Effective receptive fields alone."""
    from visprism.examine import write_figures, write_tables

    writers = (write_tables, write_figures)
    _measure(arguments, ("receptive-field",), writers, look="figures", field_images=None)


def _measure(
    arguments: Namespace,
    analyses: tuple[str, ...],
    writers: Sequence[Callable],
    *,
    look: str,
    field_images: int | None = 8,
) -> None:
    from visprism.cli.progress import progress_shown
    from visprism.examine import Inquiry, examine, load_models, output_folder
    from visprism.parallel import Compute, processes, rank

    inquiry = Inquiry(
        data=arguments.data,
        analyses=analyses,
        split=arguments.split,
        limit=arguments.limit,
        field_images=field_images,
        batch_size=arguments.batch_size,
        size=arguments.size,
        skip_bad=arguments.skip_bad,
        seed=arguments.seed,
        compute=Compute(device=arguments.device, precision=arguments.precision),
        protocol=getattr(arguments, "protocol", "default"),
        profile=getattr(arguments, "profile", "diagonal"),
        command=arguments.command,
    )
    with processes(inquiry.compute):
        with output_folder(arguments.out) as folder, progress_shown() as progress:
            models = load_models(
                arguments.models, pretrained=arguments.pretrained, seed=arguments.seed
            )
            examinations = examine(models, inquiry, progress=progress)
            if rank() == 0:
                for write in progress(writers, "figures and tables"):
                    write(examinations, folder)
        if rank() == 0:
            print(verdicts(examinations))
            print(f"Written, look at {arguments.out / look}")
