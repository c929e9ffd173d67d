"""``visprism landscape`` and ``trajectory``: the loss about weights, and their way."""

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from visprism.cli.measured import Found, inquiry_of, measure_and_write, writers_of
from visprism.cli.naming import MODEL
from visprism.cli.options import out_options, seed_options, size_options
from visprism.cli.text import verdicts
from visprism.cli.values import positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visprism.cli.commands import Commands
    from visprism.examine import Progress
    from visprism.models import LoadedModel


def landscape(arguments: Namespace) -> None:
    """The loss over planes through each model's weights; an interrupted run goes on."""
    from visprism.core.processes import rank
    from visprism.examine import Survey, landscapes_of, prepare, write_paths, write_report
    from visprism.measure.loss.landscape import discard_partial
    from visprism.report.examination import slug

    inquiry = inquiry_of(arguments, ("landscape",))
    names = ("points", "reach", "pairs", "lines", "normalization", "weight_decay")
    words = arguments.plane in (["random"], ["hessian"])
    plane = () if words else tuple(map(Path, arguments.plane))
    survey = Survey(
        **{name: getattr(arguments, name) for name in (*names, "batch_norm", "augment")},
        checkpoints=plane,
        eigenvectors=arguments.plane == ["hessian"],
    )
    used: list[Path] = []

    def part(label: str) -> Path:
        used.append(arguments.out / f".landscape-{slug(label)}")
        return used[-1]

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        materials = prepare(models, inquiry, progress=progress)
        found = landscapes_of(materials, inquiry, survey, parts=part, progress=progress)
        writers = writers_of(found, write_report)
        if survey.checkpoints:
            writers.append(partial(write_paths, found, materials, survey))
        return verdicts(found), writers

    try:
        measure_and_write(arguments, inquiry, measure, look="report.html")
    except KeyboardInterrupt as stop:
        if not used:
            raise
        raise KeyboardInterrupt("the same command will go on where it was") from stop
    if rank() == 0:
        for path in used:
            discard_partial(path)


def trajectory(arguments: Namespace) -> None:
    """The way of a model's weights through training, from snapshots."""
    from dataclasses import replace

    from visprism.anatomy import costs
    from visprism.core.provenance import Provenance
    from visprism.examine import (
        load_models,
        output_folder,
        take_apart,
        write_figures,
        write_tables,
    )
    from visprism.measure.loss.landscape import trajectory
    from visprism.models.state_dicts import read_state_dict
    from visprism.report import Examination

    with output_folder(arguments.out) as folder:
        (loaded,) = load_models([arguments.model], seed=arguments.seed)
        anatomy = take_apart(loaded, size=arguments.size, seed=arguments.seed)
        facts = Provenance(model=loaded.name, command=arguments.command)
        states = [read_state_dict(path) for path in arguments.snapshots]
        result = trajectory(anatomy.model, states, provenance=facts)
        of_model = replace(costs(anatomy), provenance=facts)
        found = [Examination(loaded.label, of_model, (result,))]
        write_tables(found, folder), write_figures(found, folder)
    print(verdicts(found))
    print(f"Written, look at {arguments.out / 'figures'}")


def add_commands(commands: "Commands") -> None:
    """``landscape`` and ``trajectory``."""
    about = "the loss about a model's weights"
    _planes_options(commands.measuring("landscape", landscape, about, limit=1000))
    way = commands.add(
        "trajectory", trajectory, "the way of a model's weights in training", MODEL
    )
    way.add_argument("model", metavar="MODEL")
    way.add_argument(
        "--snapshots",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="checkpoints, in the order of training",
    )
    out_options(way)
    seed_options(way)
    size_options(way)


def _planes_options(to: ArgumentParser) -> None:
    """Which planes, and on which images."""
    to.add_argument(
        "--points", type=positive, default=21, metavar="N", help="of the grid, a side (21); odd"
    )
    to.add_argument("--reach", type=float, default=1.0, metavar="R", help="from -R to R (1.0)")
    to.add_argument(
        "--pairs", type=positive, default=1, metavar="N", help="of random directions (1)"
    )
    to.add_argument("--lines", action="store_true", help="along single directions only")
    to.add_argument(
        "--normalization", default="filter", choices=["filter", "layer", "none", "paper"]
    )
    to.add_argument(
        "--weight-decay", type=float, default=0.05, metavar="WD", help="of the L2 term (0.05)"
    )
    to.add_argument(
        "--plane",
        nargs="+",
        default=["random"],
        metavar="random|hessian|FILE",
        help="along random directions (default), along the two sharpest, through the model and"
        " 1 or 2 checkpoints, or along the path of more, named in the order of training",
    )
    to.add_argument(
        "--batch-norm",
        default="frozen",
        choices=["frozen", "reestimated"],
        help="running statistics: the model's (default), or estimated anew at each point",
    )
    to.add_argument(
        "--augment", action="store_true", help="images as the paper's networks are trained"
    )
