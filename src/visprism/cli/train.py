"""``visprism train``: a recipe, data and a model in; weights and learning curves out."""

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from visprism.cli.options import out_options, size_options
from visprism.cli.values import nonnegative, minutes, positive

if TYPE_CHECKING:
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
        checkpoint = good_state(arguments.out)
        message = "no checkpoint was saved yet"
        if checkpoint is not None:
            message = f"saved {checkpoint}; rerun the same command with --resume to resume"
        raise KeyboardInterrupt(message) from stop
    print("\n".join(history.sentences()))
    print(f"Wrote {arguments.out}")


def recipes(arguments: Namespace) -> None:
    """List the recipes, or print one as YAML."""
    from visprism.cli.catalog import described
    from visprism.cli.text import columns
    from visprism.training import RECIPES, as_yaml

    if arguments.recipe is None:
        print(columns(["recipe", "what it is"], described(RECIPES)))
    else:
        print(as_yaml(recipe_of(arguments)), end="")


def add_recipes(to: ArgumentParser) -> None:
    """The arguments of ``recipes``."""
    to.add_argument("recipe", nargs="?", metavar="RECIPE", help="recipe to print as YAML")
    changes_options(to)
    to.set_defaults(run=recipes)


def add_train(to: ArgumentParser) -> None:
    """The arguments of ``train``."""
    to.set_defaults(run=train)
    to.add_argument("recipe", metavar="RECIPE", help="a name (`visprism recipes`) or FILE.yaml")
    to.add_argument("--model", required=True, metavar="MODEL", help="model, see below")
    to.add_argument("--data", required=True, metavar="DATA", help="training data, see below")
    out_options(to)
    changes_options(to)
    to.add_argument("--epochs", type=positive, metavar="N", help="epochs, as --set epochs=N")
    to.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="number of training images, as --set images=N",
    )
    to.add_argument(
        "--subset",
        type=float,
        default=1.0,
        metavar="F",
        help="fraction of each class to train on (default: 1)",
    )
    to.add_argument(
        "--resume", action="store_true", help="resume the run that DIR holds, if there is one"
    )
    to.add_argument(
        "--split", metavar="NAME", help="split to train on (default: train, or all images)"
    )
    to.add_argument(
        "--test",
        default="",
        metavar="DATA",
        help="other data to evaluate on (default: the test split)",
    )
    to.add_argument(
        "--test-split", metavar="NAME", help="split to evaluate on (default: test, or val)"
    )
    to.add_argument(
        "--test-limit",
        type=positive,
        metavar="N",
        help="largest number of test images, balanced over classes",
    )
    to.add_argument(
        "--teacher", default="", metavar="MODEL@FILE", help="teacher for distillation"
    )
    to.add_argument("--pretrained", action="store_true", help="start from published weights")
    to.add_argument(
        "--skip-bad", action="store_true", help="leave out images that cannot be read"
    )
    size_options(to)
    to.add_argument(
        "--workers",
        type=nonnegative,
        default=4,
        metavar="N",
        help="processes that read images larger than 64 pixels (default: 4)",
    )
    to.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default: cpu)")
    to.add_argument(
        "--sharded",
        action="store_true",
        help="shard weights over the processes of torchrun (FSDP)",
    )
    to.add_argument(
        "--minutes",
        type=minutes,
        default=10.0,
        metavar="M",
        help="minutes between checkpoints (default: 10)",
    )
    to.add_argument(
        "--log",
        action="append",
        metavar="NAME",
        help="logger: tensorboard, wandb or trackio; repeatable (default: tensorboard if"
        " installed; history.csv is always written)",
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
        help="a field of the recipe, such as lr=1e-3; repeatable",
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
        raise argparse.ArgumentTypeError(f"must be FIELD=VALUE, such as lr=1e-3, got {text!r}")
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
