"""What every command that measures shares: models in, tables, figures and a verdict out."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.examine import Inquiry, Progress
    from visprism.models import LoadedModel
    from visprism.report import Examination

Writer = Callable[..., None]  # of a folder
Found = tuple[str, Sequence[Writer]]  # what to say, and what to write


def writers_of(examinations: "Sequence[Examination]", *more: Callable) -> list[Writer]:
    """What writes the tables and figures of these, and more."""
    from visprism.examine import write_figures, write_tables

    return [partial(write, examinations) for write in (write_tables, write_figures, *more)]


def measure_and_write(
    arguments: Namespace,
    inquiry: "Inquiry",
    measure: "Callable[[Sequence[LoadedModel], Progress], Found]",
    *,
    look: str = "figures",
) -> None:
    """Load the models, measure, write everything or nothing, and say what was found."""
    from visprism.cli.progress import progress_shown
    from visprism.core.processes import processes, rank
    from visprism.examine import load_models, output_folder

    with processes(inquiry.compute):
        with output_folder(arguments.out) as folder, progress_shown() as progress:
            models = load_models(
                arguments.models, pretrained=arguments.pretrained, seed=arguments.seed
            )
            text, writers = measure(models, progress)
            if rank() == 0:
                for write in progress(writers, "figures and tables"):
                    write(folder)
        if rank() == 0:
            print(text)
            print(f"Written, look at {arguments.out / look}")


def inquiry_of(arguments: Namespace, analyses: tuple[str, ...]) -> "Inquiry":
    """What was asked for on the command line."""
    from visprism.core.devices import Compute
    from visprism.examine import Inquiry

    return Inquiry(
        data=arguments.data,
        analyses=analyses,
        split=arguments.split,
        limit=arguments.limit,
        batch_size=arguments.batch_size,
        size=arguments.size,
        skip_bad=arguments.skip_bad,
        seed=arguments.seed,
        compute=Compute(device=arguments.device, precision=arguments.precision),
        protocol=getattr(arguments, "protocol", "default"),
        profile=getattr(arguments, "profile", "diagonal"),
        minutes=getattr(arguments, "minutes", Inquiry.minutes),
        kernel=getattr(arguments, "kernel", "linear"),
        command=arguments.command,
    )
