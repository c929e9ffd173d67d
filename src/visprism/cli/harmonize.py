"""``visprism harmonize``: a CNN with self-attention instead of some of its Conv blocks."""

import argparse
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from visprism.cli.options import (
    Container,
    device_options,
    json_option,
    out_options,
    size_options,
    weights_options,
)
from visprism.cli.output import columns, print_json, records
from visprism.cli.train import changes_options, recipe_of
from visprism.cli.values import positive

if TYPE_CHECKING:
    from torch import nn

    from visprism.harmonize import MSAConfig, Placement, ReplacementSearch
    from visprism.models import LoadedModel


def harmonize(arguments: Namespace) -> None:
    """Convert a CNN by a rule, or search for the blocks that attention should replace."""
    from dataclasses import asdict

    import torch

    from visprism.anatomy import errors_of_model
    from visprism.core.files import output_folder
    from visprism.core.processes import require_single_process
    from visprism.drawing.panel import panel
    from visprism.drawing.save import save_figure
    from visprism.harmonize import MSAConfig, conv_blocks, save_alternet, select_blocks
    from visprism.harmonize import harmonize_model as convert

    require_single_process("visprism harmonize")
    msa = MSAConfig(arguments.heads, arguments.head_dim, arguments.window)
    search = None
    if arguments.search is None:
        network, placement = _network(arguments), arguments.placement
    else:
        search, network = _search(arguments, msa)
        placement = search.best
    images = torch.zeros(2, 3, *network.preprocessing.size)
    with errors_of_model(network.model, images):
        blocks = conv_blocks(network.model, images)
    names = select_blocks(blocks, placement)
    alternet = convert(network.model, images, names, **asdict(msa), seed=arguments.seed)
    with output_folder(arguments.out) as folder:
        saved = save_alternet(
            alternet, network, folder, cnn=arguments.model, names=names, msa=msa
        )
        if search is not None:
            search.save(folder / "search.npz")
            save_figure(panel({network.label: search}), folder / "search")
    rows = [
        (
            b.name,
            str(b.stage),
            f"{b.out_chans}x{b.grid[0]}x{b.grid[1]}",
            "MSA" if b.name in names else "Conv",
        )
        for b in blocks
    ]
    header = ["block", "stage", "output", "kind"]
    before, after = (_parameters(model) for model in (network.model, alternet))
    findings = [str(finding) for finding in search.findings()] if search is not None else []
    model = _final_name(saved, folder, arguments)
    if arguments.json:
        print_json(
            {
                "blocks": records(header, rows),
                "parameters_before": before,
                "parameters_after": after,
                "findings": findings,
                "out": str(arguments.out),
                "model": model,
            }
        )
        return
    print(columns(header, rows))
    print(f"{before:,} parameters before, {after:,} after")
    print(*findings, f"Wrote {arguments.out}; load it as {model}", sep="\n")


def _final_name(name: str, scratch: object, arguments: Namespace) -> str:
    """The name of the saved network, which was written to a temporary folder first."""
    return name.replace(str(scratch), str(arguments.out))


def _parameters(model: "nn.Module") -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _network(arguments: Namespace) -> "LoadedModel":
    from dataclasses import replace

    from visprism.models import load_model

    loaded = load_model(arguments.model, pretrained=arguments.pretrained, seed=arguments.seed)
    if arguments.size is None:
        return loaded
    return replace(loaded, preprocessing=replace(loaded.preprocessing, size=arguments.size))


def _search(arguments: Namespace, msa: "MSAConfig") -> "tuple[ReplacementSearch, LoadedModel]":
    from visprism.core.devices import Compute
    from visprism.core.errors import InputError
    from visprism.core.progress import console_progress
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.harmonize import search_by_recipe
    from visprism.harmonize.search_by_recipe import LOG
    from visprism.training import Job

    if arguments.data is None:
        raise InputError("--search needs --data, on which candidates are trained")
    arguments.recipe = arguments.search
    recipe = recipe_of(arguments)
    names = ("model", "data", "split", "pretrained", "size")
    job = Job(folder=arguments.out, **{name: getattr(arguments, name) for name in names})
    try:
        with console_progress() as progress:
            return search_by_recipe(
                job,
                recipe,
                msa=msa,
                repeats=arguments.repeats,
                report=lambda text: print(text, file=sys.stderr, flush=True),
                run=Run(
                    compute=Compute(arguments.device),
                    progress=progress,
                    provenance=Provenance(command=arguments.command),
                ),
            )
    except KeyboardInterrupt as interruption:
        message = "no training was complete"
        if (arguments.out / LOG).exists():
            message = f"{arguments.out / LOG} is kept; the same command resumes"
        raise KeyboardInterrupt(message) from interruption


def _placement(text: str) -> "Placement":
    """A rule, numbers, or names of blocks."""
    if text in {"alternate", "end-of-stage"}:
        return text  # pyrefly: ignore (one of the rules)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError(
            f"must be alternate, end-of-stage, numbers or names of blocks, got {text!r}"
        )
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else tuple(parts)


def _heads(text: str) -> int | tuple[int, ...]:
    """One number, or one for each stage."""
    numbers = tuple(positive(part) for part in text.split(","))
    return numbers[0] if len(numbers) == 1 else numbers


def add(to: argparse.ArgumentParser) -> None:
    """The arguments of ``harmonize``."""
    to.set_defaults(run=harmonize)
    to.add_argument("model", metavar="MODEL", help="convolutional network, see below")
    weights_options(to)
    out_options(to)
    size_options(to)
    to.add_argument(
        "--placement",
        type=_placement,
        default="alternate",
        metavar="RULE|COUNTS|NAMES",
        help="blocks to replace: alternate, end-of-stage, a number per stage such as 0,1,1,2, "
        "or names such as layer3.2,layer4.1 (default: alternate)",
    )
    to.add_argument(
        "--heads",
        type=_heads,
        metavar="N[,N...]",
        help="number of heads, of all MSA blocks or per stage (default: 3 x channels of the "
        "block / head dimension)",
    )
    to.add_argument(
        "--head-dim",
        type=positive,
        default=64,
        metavar="N",
        help="channels of each head (default: 64)",
    )
    to.add_argument(
        "--window",
        type=positive,
        metavar="N",
        help="side of a window in positions of the feature map (default: the side of the last "
        "stage's feature map, at most 8)",
    )
    to.add_argument(
        "--search",
        metavar="RECIPE",
        help="recipe by which candidates are trained to find the blocks; needs --data "
        "(default: no search)",
    )
    device_options(to)
    json_option(to)
    _search_options(to.add_argument_group("search (only with --search)"))


def _search_options(to: Container) -> None:
    """How candidates are trained."""
    to.add_argument("--data", metavar="DATA", help="training data of a search (default: none)")
    to.add_argument(
        "--split", metavar="NAME", help="split of the data (default: train, or all images)"
    )
    to.add_argument(
        "--repeats",
        type=positive,
        default=3,
        metavar="N",
        help="number of seeds of each candidate (default: 3)",
    )
    to.add_argument(
        "--epochs",
        type=positive,
        metavar="N",
        help="number of epochs, as --set epochs=N (default: as in the recipe)",
    )
    to.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="maximum number of training images, balanced over classes, as --set limit=N "
        "(default: as in the recipe)",
    )
    changes_options(to)
