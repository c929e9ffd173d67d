"""``visprism examine`` and each analysis alone: measure, write, say what was found."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from visprism.cli.text import likeness, verdicts

if TYPE_CHECKING:
    from visprism.examine import Inquiry, Progress
    from visprism.models import LoadedModel
    from visprism.report import Examination

Writer = Callable[..., None]  # of a folder
Found = tuple[str, Sequence[Writer]]  # what to say, and what to write


def examine(arguments: Namespace) -> None:
    """Every analysis, and a report."""
    from visprism.examine import Inquiry, write_report

    _examine(arguments, Inquiry.analyses, more=(write_report,), look="report.html")


def fourier(arguments: Namespace) -> None:
    """The Fourier analysis alone."""
    _examine(arguments, ("fourier",))


def variance(arguments: Namespace) -> None:
    """The variance of feature maps alone."""
    _examine(arguments, ("variance",))


def receptive_field(arguments: Namespace) -> None:
    """Effective receptive fields alone."""
    _examine(arguments, ("receptive-field",), field_images=None)


def attention(arguments: Namespace) -> None:
    """The statistics of attention alone, and maps of a few images."""
    from visprism.examine import (
        attention_maps_of,
        examine_prepared,
        prepare,
        write_attention_maps,
    )

    inquiry = inquiry_of(arguments, ("attention",))

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        materials = prepare(models, inquiry, progress=progress)
        asked = {"query": arguments.query, "images": arguments.maps}
        maps = attention_maps_of(materials, inquiry, **asked)
        examinations = examine_prepared(materials, inquiry, progress=progress)
        writers = [*writers_of(examinations), partial(write_attention_maps, maps)]
        return verdicts(examinations), writers

    measure_and_write(arguments, inquiry, measure)


def cka(arguments: Namespace) -> None:
    """The similarity of all blocks of each model, and of each two models' blocks."""
    from visprism.examine import examine_and_compare, write_comparisons

    inquiry = inquiry_of(arguments, ("cka",))

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        examinations, comparisons = examine_and_compare(models, inquiry, progress=progress)
        writers = [*writers_of(examinations), partial(write_comparisons, comparisons)]
        return "\n".join([verdicts(examinations), *likeness(comparisons)]), writers

    measure_and_write(arguments, inquiry, measure)


def _examine(
    arguments: Namespace,
    analyses: tuple[str, ...],
    *,
    more: Sequence[Callable] = (),
    look: str = "figures",
    field_images: int | None = 8,
) -> None:
    """These analyses of each model, with tables, figures and what `more` writes."""
    from visprism.examine import examine

    inquiry = replace(inquiry_of(arguments, analyses), field_images=field_images)

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        examinations = examine(models, inquiry, progress=progress)
        return verdicts(examinations), writers_of(examinations, *more)

    measure_and_write(arguments, inquiry, measure, look=look)


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
    from visprism.examine import load_models, output_folder
    from visprism.parallel import processes, rank

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
    from visprism.examine import Inquiry
    from visprism.parallel import Compute

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
