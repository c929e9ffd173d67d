"""``visprism anatomy``: the blocks of a model, as a table and a drawing."""

from argparse import Namespace
from typing import TYPE_CHECKING

from visprism.cli.naming import MODEL
from visprism.cli.options import size_options, weights_options
from visprism.cli.text import columns
from visprism.cli.values import folder

if TYPE_CHECKING:
    from visprism.cli.commands import Commands


def anatomy(arguments: Namespace) -> None:
    """Print a model's blocks; draw them if a folder is named."""
    from contextlib import nullcontext

    from visprism.anatomy import costs
    from visprism.examine import (
        load_models,
        output_folder,
        take_apart,
        write_figures,
        write_tables,
    )
    from visprism.report import Examination
    from visprism.report.tables import amount

    with output_folder(arguments.out) if arguments.out else nullcontext() as place:
        (loaded,) = load_models(
            [arguments.model], pretrained=arguments.pretrained, seed=arguments.seed
        )
        found = costs(take_apart(loaded, size=arguments.size, seed=arguments.seed))
        rows = zip(
            found.block.tolist(),
            found.kind.tolist(),
            map(str, found.stage.tolist()),
            found.shape.tolist(),
            map(amount, found.parameters.tolist()),
            map(amount, found.macs.tolist()),
            strict=True,
        )
        print(loaded.name)
        print(columns(["block", "kind", "stage", "output", "parameters", "MACs"], rows))
        print(
            f"{len(found)} blocks, {amount(found.distinct_parameters)} parameters, "
            f"{amount(found.macs.sum().item())} MACs for one image"
        )
        if place:
            alone = [Examination(loaded.label, found, ())]
            write_tables(alone, place), write_figures(alone, place)


def add_commands(commands: "Commands") -> None:
    """``anatomy``."""
    blocks = commands.add("anatomy", anatomy, "the blocks of a model, as a table", MODEL)
    blocks.add_argument("model", metavar="MODEL")
    blocks.add_argument(
        "--out", type=folder, metavar="DIR", help="write a drawing and the table"
    )
    weights_options(blocks)
    size_options(blocks)
