"""``visprism harmonize``: a CNN with self-attention in the place of some of its Conv blocks."""

import argparse
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from visprism.cli.options import out_options, size_options, weights_options
from visprism.cli.text import columns
from visprism.cli.train import changes_options, recipe_of
from visprism.cli.values import positive

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from visprism.harmonize import Placement, ReplacementSearch, Shape
    from visprism.models import LoadedModel


def harmonize(arguments: Namespace) -> None:
    """Convert a CNN by a rule, or search for the blocks that attention should replace."""
    from dataclasses import asdict

    import torch

    from visprism.core.files import output_folder
    from visprism.core.processes import require_single_process
    from visprism.harmonize import Shape, conv_blocks, placed, save_alternet
    from visprism.harmonize import harmonize as converted
    from visprism.harmonize.model_file import MODULE, WEIGHTS

    require_single_process("visprism harmonize")
    shape = Shape(arguments.heads, arguments.head_dim, arguments.window)
    found = None
    if arguments.search is None:
        network, placement = _network(arguments), arguments.placement
    else:
        found, network = _searched(arguments, shape)
        placement = found.best
    height, width = network.preprocessing.size
    blocks = conv_blocks(network.model, torch.zeros(2, 3, height, width))
    names = placed(blocks, placement)
    alternet = converted(
        network.model,
        torch.zeros(2, 3, height, width),
        names,
        **asdict(shape),
        seed=arguments.seed,
    )
    with output_folder(arguments.out) as folder:
        facts = {"base": arguments.model, "names": names, **asdict(shape)}
        save_alternet(alternet, network, folder, **facts)
        if found is not None:
            _write(found, network.label, folder)
    rows = [
        (b.name, str(b.stage), f"{b.out_chans}x{b.grid[0]}x{b.grid[1]}", _now(b.name in names))
        for b in blocks
    ]
    print(columns(["block", "stage", "map", "now"], rows))
    before, after = (_size(model) for model in (network.model, alternet))
    print(f"{before:,} parameters before, {after:,} after")
    for sentence in found.sentences() if found is not None else ():
        print(sentence)
    out = arguments.out
    print(f"Written; as a model: {out / MODULE}:alternet@{out / WEIGHTS}")


def _now(replaced: bool) -> str:  # noqa: FBT001 (a cell of a table)
    return "MSA" if replaced else "Conv"


def _size(model: "nn.Module") -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _network(arguments: Namespace) -> "LoadedModel":
    from dataclasses import replace

    from visprism.models import load_model

    loaded = load_model(arguments.model, pretrained=arguments.pretrained, seed=arguments.seed)
    if arguments.size is None:
        return loaded
    return replace(loaded, preprocessing=replace(loaded.preprocessing, size=arguments.size))


def _searched(arguments: Namespace, shape: "Shape") -> "tuple[ReplacementSearch, LoadedModel]":
    from visprism.cli.progress import progress_shown, steps_shown
    from visprism.core.errors import InputError
    from visprism.harmonize import search
    from visprism.harmonize.search_job import LOG
    from visprism.training import Job

    if arguments.data is None:
        raise InputError("--search trains candidates, so it wants --data, such as cifar10")
    arguments.recipe = arguments.search
    recipe = recipe_of(arguments)
    names = ("model", "data", "split", "pretrained", "size", "device", "command")
    job = Job(folder=arguments.out, **{name: getattr(arguments, name) for name in names})
    try:
        with progress_shown() as reading, steps_shown(recipe.batch_size) as steps:
            return search(
                job,
                recipe,
                shape=shape,
                repeats=arguments.repeats,
                progress=steps,
                reading=reading,
                shown=lambda text: print(text, file=sys.stderr, flush=True),
            )
    except KeyboardInterrupt as stop:
        told = "nothing was kept yet"
        if (arguments.out / LOG).exists():
            told = f"{arguments.out / LOG} is kept, and the same command goes on after it"
        raise KeyboardInterrupt(told) from stop


def _write(found: "ReplacementSearch", label: str, folder: "Path") -> None:
    from visprism.figures import panel, save_figure

    found.save(folder / "search.npz")
    save_figure(panel([found], names=[label]), folder / "search")


def _placement(text: str) -> "Placement":
    """A rule, numbers, or names of blocks."""
    if text in {"alternate", "end-of-stage"}:
        return text  # pyrefly: ignore (one of the rules)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError("an empty placement; name a rule, numbers or blocks")
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
        help="alternate (default), end-of-stage, so many of each stage as 0,1,1,2, or names of"
        " blocks as layer3.2,layer4.1",
    )
    to.add_argument(
        "--heads",
        type=_heads,
        metavar="N[,N...]",
        help="of all MSA blocks, or by stage (3 width / head dimension)",
    )
    to.add_argument("--head-dim", type=positive, default=64, metavar="N", help="channels (64)")
    to.add_argument(
        "--window", type=positive, metavar="N", help="pixels a side (the last stage's grid)"
    )
    to.add_argument(
        "--search",
        metavar="RECIPE",
        help="train candidates by this recipe, and keep MSA blocks that help; wants --data",
    )
    to.add_argument("--data", metavar="DATA", help="to train candidates on")
    to.add_argument(
        "--split", metavar="NAME", help="of the data (train, or all of data without)"
    )
    to.add_argument(
        "--repeats", type=positive, default=3, metavar="N", help="seeds of each candidate (3)"
    )
    to.add_argument("--epochs", type=positive, metavar="N", help="as --set epochs=N")
    to.add_argument("--limit", type=positive, metavar="N", help="as --set images=N")
    to.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    changes_options(to)
