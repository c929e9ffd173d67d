"""``visprism train``: a recipe, data and a model in; weights and learning curves out."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from visprism.cli.options import (
    Container,
    device_options,
    json_option,
    out_options,
    size_options,
)
from visprism.cli.output import columns, print_json, records
from visprism.cli.values import fraction, minutes, nonnegative, positive

if TYPE_CHECKING:
    from visprism.training import Recipe


def train(arguments: Namespace) -> None:
    """Train, draw the learning curves, and print the outcome."""
    from dataclasses import fields

    from visprism.core.devices import Compute
    from visprism.core.processes import processes, rank
    from visprism.core.progress import console_progress
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.drawing.panel import panel
    from visprism.drawing.save import save_figure
    from visprism.table.result import Result
    from visprism.training import Job, train
    from visprism.training.checkpoint_files import valid_checkpoint

    recipe = recipe_of(arguments)
    given = {"folder": arguments.out, "logs": tuple(arguments.log) if arguments.log else None}
    shared = {f.name: getattr(arguments, f.name) for f in fields(Job) if f.name not in given}
    compute = Compute(arguments.device)
    try:
        with processes(compute), console_progress() as progress:
            run = Run(
                compute=compute,
                progress=progress,
                provenance=Provenance(command=arguments.command),
            )
            lines = [_EpochLines(recipe)] if rank() == 0 else []
            history = train(Job(**given, **shared), recipe, loggers=lines, run=run)
            if rank() > 0:
                return
            save_figure(panel([history]), arguments.out / "curves-loss")
            if history.evaluated:
                figure = panel([history], quantity="accuracy")
                save_figure(figure, arguments.out / "curves-accuracy")
            results: list[Result] = [history]
            if recipe.curvature_every:
                curvature = Result.load(arguments.out / "curvature.npz")
                save_figure(panel([curvature]), arguments.out / "curves-curvature")
                results.append(curvature)
    except KeyboardInterrupt as interruption:
        checkpoint = valid_checkpoint(arguments.out)
        message = "no training checkpoint was saved yet"
        if checkpoint is not None:
            message = f"saved {checkpoint}; the same command with --resume resumes"
        raise KeyboardInterrupt(message) from interruption
    findings = [str(finding) for result in results for finding in result.findings()]
    if arguments.json:
        print_json({"out": str(arguments.out), "findings": findings})
    else:
        print(*findings, f"Wrote {arguments.out}", sep="\n")


def recipes(arguments: Namespace) -> None:
    """List the recipes, or print one as YAML."""
    from visprism.cli.catalog import described
    from visprism.training import RECIPES, as_yaml
    from visprism.training.recipe_files import recipe_fields

    header = ["recipe", "description"]
    if arguments.recipe is None and arguments.json:
        print_json(records(header, described(RECIPES)))
    elif arguments.recipe is None:
        print(columns(header, described(RECIPES)))
    elif arguments.json:
        print_json(recipe_fields(recipe_of(arguments)))
    else:
        print(as_yaml(recipe_of(arguments)), end="")


def add_recipes(to: ArgumentParser) -> None:
    """The arguments of ``recipes``."""
    to.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="recipe to print as YAML (default: list all)",
    )
    changes_options(to)
    json_option(to)
    to.set_defaults(run=recipes)


def add_train(to: ArgumentParser) -> None:
    """The arguments of ``train``."""
    to.set_defaults(run=train)
    to.add_argument(
        "recipe", metavar="RECIPE", help="recipe, a name of `visprism recipes` or FILE.yaml"
    )
    to.add_argument("--model", required=True, metavar="MODEL", help="model, see below")
    to.add_argument("--data", required=True, metavar="DATA", help="training data, see below")
    out_options(to)
    changes_options(to)
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
    to.add_argument(
        "--subset",
        type=fraction,
        default=1.0,
        metavar="F",
        help="fraction of the training images of each class (default: 1)",
    )
    to.add_argument(
        "--resume",
        action="store_true",
        help="resume the run in DIR, if there is one (default: refuse a folder with a run)",
    )
    to.add_argument(
        "--split", metavar="NAME", help="split to train on (default: train, or all images)"
    )
    to.add_argument(
        "--test-data",
        default="",
        metavar="DATA",
        help="data to evaluate on (default: the test split of DATA)",
    )
    to.add_argument(
        "--test-split",
        metavar="NAME",
        help="split to evaluate on (default: test, or val)",
    )
    to.add_argument(
        "--test-limit",
        type=positive,
        metavar="N",
        help="maximum number of test images, balanced over classes (default: all)",
    )
    to.add_argument(
        "--teacher",
        default="",
        metavar="MODEL@FILE",
        help="teacher for knowledge distillation (default: none)",
    )
    to.add_argument(
        "--pretrained",
        action="store_true",
        help="start from published weights (default: from random weights)",
    )
    to.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave out images that cannot be read (default: refuse them)",
    )
    size_options(to)
    to.add_argument(
        "--workers",
        type=nonnegative,
        default=4,
        metavar="N",
        help="processes that read images larger than 64 pixels (default: 4)",
    )
    device_options(to)
    to.add_argument(
        "--sharded",
        action="store_true",
        help="shard parameters and optimizer over the processes of torchrun with FSDP "
        "(default: replicate them)",
    )
    to.add_argument(
        "--checkpoint-minutes",
        type=minutes,
        default=10.0,
        metavar="N",
        help="minutes between training checkpoints within an epoch (default: 10)",
    )
    to.add_argument(
        "--log",
        action="append",
        metavar="NAME",
        help="logger: tensorboard, trackio or wandb; repeatable (default: tensorboard if"
        " installed; history.csv is always written)",
    )
    json_option(to, "findings")


def changes_options(to: Container) -> None:
    """Other values for fields of a recipe."""
    to.add_argument(
        "--set",
        action="append",
        default=[],
        type=_change,
        dest="changes",
        metavar="FIELD=VALUE",
        help="field of the recipe, such as lr=1e-3; repeatable (default: as in the recipe)",
    )


def recipe_of(arguments: Namespace) -> "Recipe":
    """The recipe that is named, with the changes that are given."""
    from visprism.training import load_recipe

    changes = dict(arguments.changes)
    for name in ("epochs", "limit"):
        if getattr(arguments, name, None) is not None:
            changes[name] = getattr(arguments, name)
    return load_recipe(arguments.recipe).replace(**changes)


def _change(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise ArgumentTypeError(f"must be FIELD=VALUE, such as lr=1e-3, got {text!r}")
    return name, value


class _EpochLines:
    """A logger that prints a line for each epoch on stderr, as progress is."""

    def __init__(self, recipe: "Recipe") -> None:
        self._epochs = recipe.epochs

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Print the values of an epoch."""
        if "epoch" not in values:
            return
        parts = [f"epoch {values['epoch']:.0f} of {self._epochs}"]
        parts.append(f"loss {values['train_loss']:.4f}")
        if "test_accuracy" in values:
            parts.append(f"test {values['test_accuracy']:.2%}, NLL {values['test_nll']:.3f}")
        parts.append(f"{values['images_per_second']:.0f} images/s")
        print(" · ".join(parts), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Do nothing: every line is printed at once."""
