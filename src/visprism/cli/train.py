"""``visprism train``: a recipe, data and a model in; weights and learning curves out."""

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from visprism.cli.naming import BOTH
from visprism.cli.options import out_options, size_options
from visprism.cli.values import from_zero, minutes, positive

if TYPE_CHECKING:
    from visprism.cli.commands import Commands
    from visprism.training import Recipe


def train(arguments: Namespace) -> None:
    """Train, draw the curves, and say how it went."""
    from dataclasses import fields

    from visprism.cli.progress import progress_shown, steps_shown
    from visprism.core.devices import Compute
    from visprism.core.processes import processes, rank
    from visprism.figures import panel, save_figure
    from visprism.training import Job, train
    from visprism.training.resuming import good_state

    recipe = recipe_of(arguments)
    here = {"folder": arguments.out, "logs": tuple(arguments.log) if arguments.log else None}
    there = {f.name: getattr(arguments, f.name) for f in fields(Job) if f.name not in here}
    job = Job(**here, **there)
    try:
        with (
            processes(Compute(job.device)),
            progress_shown() as reading,
            steps_shown(recipe.batch_size) as steps,
        ):
            lines = [_Epochs(recipe)]
            history = train(job, recipe, progress=steps, reading=reading, loggers=lines)
            if rank() > 0:
                return
            save_figure(panel([history]), arguments.out / "curves-loss")
            if history.evaluated:
                figure = panel([history], quantity="accuracy")
                save_figure(figure, arguments.out / "curves-accuracy")
    except KeyboardInterrupt as stop:
        kept = good_state(arguments.out)
        told = "no state was kept yet"
        if kept is not None:
            told = f"{kept} is kept, and the same command with --resume goes on from it"
        raise KeyboardInterrupt(told) from stop
    print("\n".join(history.sentences()))
    print(f"Written, look at {arguments.out}")


def recipes(arguments: Namespace) -> None:
    """List the recipes, or print one as YAML."""
    from visprism.cli.catalogue import described
    from visprism.cli.text import columns
    from visprism.training import RECIPES, as_yaml

    if arguments.recipe is None:
        print(columns(["recipe", "what it is"], described(RECIPES)))
    else:
        print(as_yaml(recipe_of(arguments)), end="")


def add_commands(commands: "Commands") -> None:
    """``train`` and ``recipes``."""
    _train_options(commands.add("train", train, "train a model by a recipe", BOTH))
    known = commands.add(
        "recipes", recipes, "recipes that can be named, or one of them as YAML"
    )
    known.add_argument("recipe", nargs="?", metavar="RECIPE", help="to print")
    changes_options(known)


def _train_options(to: ArgumentParser) -> None:
    to.add_argument("recipe", metavar="RECIPE", help="a name (`visprism recipes`) or FILE.yaml")
    to.add_argument("--model", required=True, metavar="MODEL")
    to.add_argument("--data", required=True, metavar="DATA")
    out_options(to)
    changes_options(to)
    to.add_argument("--epochs", type=positive, metavar="N", help="as --set epochs=N")
    to.add_argument("--limit", type=positive, metavar="N", help="as --set images=N")
    to.add_argument(
        "--subset", type=float, default=1.0, metavar="F", help="a part of each class, as 0.1"
    )
    to.add_argument(
        "--resume", action="store_true", help="go on with the run that DIR holds, if any"
    )
    to.add_argument(
        "--split", metavar="NAME", help="to train on (train, or all images of data without)"
    )
    to.add_argument("--test", default="", metavar="DATA", help="other data to evaluate on")
    to.add_argument("--test-split", metavar="NAME", help="to evaluate on (test, or val)")
    to.add_argument(
        "--test-limit",
        type=positive,
        metavar="N",
        help="at most N of them, as many of each class",
    )
    to.add_argument("--teacher", default="", metavar="MODEL@FILE", help="to distil from")
    to.add_argument("--pretrained", action="store_true", help="begin with pretrained weights")
    to.add_argument(
        "--skip-bad", action="store_true", help="leave out images that cannot be read"
    )
    size_options(to)
    to.add_argument(
        "--workers",
        type=from_zero,
        default=4,
        metavar="N",
        help="processes that read images of over 64 pixels a side (4)",
    )
    to.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    to.add_argument(
        "--sharded",
        action="store_true",
        help="share weights out among the processes of torchrun, for what one GPU cannot hold",
    )
    to.add_argument(
        "--minutes", type=minutes, default=10.0, metavar="M", help="between states kept (10)"
    )
    to.add_argument(
        "--log",
        action="append",
        metavar="NAME",
        help="tensorboard (default, where it is installed), wandb or trackio; history.csv"
        " always",
    )


def changes_options(to: ArgumentParser) -> None:
    """Other values for fields of a recipe."""
    to.add_argument(
        "--set",
        action="append",
        default=[],
        type=_change,
        dest="changes",
        metavar="FIELD=VALUE",
        help="another value for a field of the recipe, as lr=1e-3",
    )


def recipe_of(arguments: Namespace) -> "Recipe":
    """The recipe that is named, with what is asked for changed."""
    from visprism.training import changed, load_recipe

    changes = dict(arguments.changes)
    for option, name in (("epochs", "epochs"), ("limit", "images")):
        if getattr(arguments, option, None) is not None:
            changes[name] = getattr(arguments, option)
    return changed(load_recipe(arguments.recipe), changes)


def _change(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise argparse.ArgumentTypeError(f"{text!r} should read FIELD=VALUE, as lr=1e-3")
    return name, value


class _Epochs:
    """A line for each epoch."""

    def __init__(self, recipe: "Recipe") -> None:
        self._epochs = recipe.epochs

    def log(self, step: int, values: Mapping[str, float]) -> None:  # noqa: ARG002
        """Print it, on stderr, as progress is."""
        if "epoch" not in values:
            return
        parts = [f"epoch {values['epoch']:.0f} of {self._epochs}"]
        parts.append(f"loss {values['train_loss']:.4f}")
        if "test_accuracy" in values:
            parts.append(f"test {values['test_accuracy']:.2%}, NLL {values['test_nll']:.3f}")
        parts.append(f"{values['images_per_second']:.0f} images/s")
        print(" · ".join(parts), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left to print."""
