"""``visprism hessian`` and ``density``: how the loss is curved about a model's weights."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from visprism.cli.measured import Found, inquiry_of, measure_and_write, writers_of
from visprism.cli.text import verdicts
from visprism.cli.values import minutes, positive

if TYPE_CHECKING:
    from visprism.cli.commands import Commands
    from visprism.examine import Bending, Progress
    from visprism.models import LoadedModel
    from visprism.report import Examination

Measure = Callable[..., "list[Examination]"]


def hessian(arguments: Namespace) -> None:
    """The foremost Hessian eigenvalues of many mini-batches."""
    from visprism.examine import hessians_of

    _measured(arguments, hessians_of)


def density(arguments: Namespace) -> None:
    """Density, trace and foremost eigenvalues of the Hessian over all images."""
    from visprism.examine import densities_of

    _measured(arguments, densities_of)


def _measured(arguments: Namespace, measure_of: Measure) -> None:
    from visprism.examine import prepare, write_report

    inquiry = inquiry_of(arguments, ())
    bending = _bending(arguments)

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        materials = prepare(models, inquiry, progress=progress)
        found = measure_of(materials, inquiry, bending, progress=progress)
        return verdicts(found), writers_of(found, write_report)

    measure_and_write(arguments, inquiry, measure, look="report.html")


def _bending(arguments: Namespace) -> "Bending":
    from visprism.examine import Bending

    names = ("k", "weight_decay", "parameters", "augment", "phases", "runs", "steps")
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    if "phases" in given:
        given["phases"] = tuple(map(Path, given["phases"]))
    return Bending(**given, minutes=getattr(arguments, "most_minutes", None))


def add_commands(commands: "Commands") -> None:
    """``hessian`` and ``density``."""
    sharp = "how sharp the loss of mini-batches is, and how convex"
    _spectrum_options(commands.measuring("hessian", hessian, sharp, limit=256))
    every = "all Hessian eigenvalues of the loss over the data"
    whole = commands.measuring("density", density, every, limit=256)
    _density_options(whole)
    whole.set_defaults(weight_decay=0.0)


def _spectrum_options(to: ArgumentParser) -> None:
    """Of which mini-batches, for how long."""
    _bent(to)
    to.add_argument(
        "--augment", action="store_true", help="on images as the paper trains on them, too"
    )
    to.add_argument(
        "--phases",
        nargs="+",
        default=[],
        metavar="FILE",
        help="checkpoints in the place of the model's own weights, as phases in one figure",
    )
    to.add_argument(
        "--minutes",
        type=minutes,
        dest="most_minutes",
        metavar="M",
        help="for each model, after which no further mini-batch is begun; none: all of them",
    )


def _density_options(to: ArgumentParser) -> None:
    """How fine the density is."""
    _bent(to)
    to.add_argument(
        "--runs", type=positive, default=2, metavar="N", help="independent starts (2)"
    )
    to.add_argument(
        "--steps", type=positive, default=40, metavar="N", help="of Lanczos in each (40)"
    )


def _bent(to: ArgumentParser) -> None:
    """Which eigenvalues, of which objective and parameters."""
    to.add_argument("-k", type=positive, default=5, metavar="N", help="eigenvalues (5)")
    to.add_argument(
        "--weight-decay",
        type=float,
        default=0.05,
        metavar="WD",
        help="of the L2 term (%(default)s)",
    )
    to.add_argument(
        "--parameters",
        default="all",
        metavar="WHICH",
        help="all (default), a pattern of names as '*.attn.*', block:NAME, stage:N, kind:KIND",
    )
