"""``visprism examine`` and each analysis alone: measure, write, say what was found."""

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from visprism.cli.text import likeness, verdicts

if TYPE_CHECKING:
    from visprism.examine import Inquiry


def examine(arguments: Namespace) -> None:
    """Every analysis, and a report."""
    from visprism.examine import write_figures, write_report, write_tables

    writers = (write_tables, write_figures, write_report)
    _measure(
        arguments,
        ("fourier", "variance", "attention", "cka", "receptive-field", "weights"),
        writers,
        look="report.html",
    )


def fourier(arguments: Namespace) -> None:
    """The Fourier analysis alone."""
    from visprism.examine import write_figures, write_tables

    _measure(arguments, ("fourier",), (write_tables, write_figures), look="figures")


def variance(arguments: Namespace) -> None:
    """The variance of feature maps alone."""
    from visprism.examine import write_figures, write_tables

    _measure(arguments, ("variance",), (write_tables, write_figures), look="figures")


def attention(arguments: Namespace) -> None:
    """The statistics of attention alone, and maps of a few images."""
    from visprism.cli.progress import progress_shown
    from visprism.examine import (
        attention_maps_of,
        examine_prepared,
        load_models,
        output_folder,
        prepare,
        write_attention_maps,
        write_figures,
        write_tables,
    )
    from visprism.parallel import processes, rank

    inquiry = _inquiry(arguments, ("attention",))
    with processes(inquiry.compute):
        with output_folder(arguments.out) as folder, progress_shown() as progress:
            models = load_models(
                arguments.models, pretrained=arguments.pretrained, seed=arguments.seed
            )
            materials = prepare(models, inquiry, progress=progress)
            asked = {"query": arguments.query, "images": arguments.maps}
            maps = attention_maps_of(materials, inquiry, **asked)
            examinations = examine_prepared(materials, inquiry, progress=progress)
            if rank() == 0:
                for write in progress((write_tables, write_figures), "figures and tables"):
                    write(examinations, folder)
                write_attention_maps(maps, folder)
        if rank() == 0:
            print(verdicts(examinations))
            print(f"Written, look at {arguments.out / 'figures'}")


def receptive_field(arguments: Namespace) -> None:
    """Effective receptive fields alone."""
    from visprism.examine import write_figures, write_tables

    writers = (write_tables, write_figures)
    _measure(arguments, ("receptive-field",), writers, look="figures", field_images=None)


def cka(arguments: Namespace) -> None:
    """The similarity of all blocks of each model, and of each two models' blocks."""
    from visprism.cli.progress import progress_shown
    from visprism.examine import (
        examine_and_compare,
        load_models,
        output_folder,
        write_comparisons,
        write_figures,
        write_tables,
    )
    from visprism.parallel import processes, rank

    inquiry = _inquiry(arguments, ("cka",))
    with processes(inquiry.compute):
        with output_folder(arguments.out) as folder, progress_shown() as progress:
            models = load_models(
                arguments.models, pretrained=arguments.pretrained, seed=arguments.seed
            )
            examinations, comparisons = examine_and_compare(models, inquiry, progress=progress)
            if rank() == 0:
                for write in progress((write_tables, write_figures), "figures and tables"):
                    write(examinations, folder)
                write_comparisons(comparisons, folder)
        if rank() == 0:
            print("\n".join([verdicts(examinations), *likeness(comparisons)]))
            print(f"Written, look at {arguments.out / 'figures'}")


def _measure(
    arguments: Namespace,
    analyses: tuple[str, ...],
    writers: Sequence[Callable],
    *,
    look: str,
    field_images: int | None = 8,
) -> None:
    from visprism.cli.progress import progress_shown
    from visprism.examine import examine, load_models, output_folder
    from visprism.parallel import processes, rank

    inquiry = replace(_inquiry(arguments, analyses), field_images=field_images)
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


def _inquiry(arguments: Namespace, analyses: tuple[str, ...]) -> "Inquiry":
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
        kernel=getattr(arguments, "kernel", "linear"),
        command=arguments.command,
    )
