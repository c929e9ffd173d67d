"""``visprism examine``, and each analysis of feature maps alone."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from visprism.cli.measured import Found, inquiry_of, measure_and_write, writers_of
from visprism.cli.options import fourier_options, kernel_options
from visprism.cli.text import likeness, verdicts
from visprism.cli.values import positive, query

if TYPE_CHECKING:
    from visprism.cli.commands import Commands
    from visprism.examine import Progress
    from visprism.models import LoadedModel


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


def add_commands(commands: "Commands") -> None:
    """``examine``, ``fourier``, ``variance``, ``attention``, ``receptive-field``, ``cka``."""
    whole = commands.measuring("examine", examine, "models side by side in one report")
    fourier_options(whole)
    kernel_options(whole)
    whole.add_argument(
        "--minutes",
        type=float,
        default=3.0,
        metavar="M",
        help="for Hessian, density, landscape, corruptions, lesions, noise and attacks"
        " together, of each model (3); 0: without them",
    )
    much = "how much of each spatial frequency every block lets pass"
    fourier_options(commands.measuring("fourier", fourier, much))
    far = "how far feature maps vary over positions, by block"
    commands.measuring("variance", variance, far)
    heads = "how far each head looks, and whether heads differ"
    _attention_options(commands.measuring("attention", attention, heads))
    # One backward pass for each block, and more images change little.
    fields = "which pixels every block answers to"
    commands.measuring("receptive-field", receptive_field, fields, limit=16)
    alike = "how alike all blocks of a model are, and those of two models"
    kernel_options(commands.measuring("cka", cka, alike))


def _attention_options(to: ArgumentParser) -> None:
    to.add_argument(
        "--query",
        type=query,
        default="mean",
        metavar="ROW,COLUMN|class|mean",
        help="of the maps: a pixel, the class token, or the mean of all queries (default)",
    )
    to.add_argument(
        "--maps", type=positive, default=2, metavar="N", help="of the first N images (2)"
    )
