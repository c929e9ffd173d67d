"""``visprism train`` and ``recipes``: a recipe, data and a model in; trained weights out."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visprism.cli.arguments import DATA, MODEL, REQUIRED, Printing, argument
from visprism.cli.output import print_json, print_table
from visprism.core.errors import InputError
from visprism.core.interruption import on_interruption
from visprism.core.request import OnDevice, Sized

if TYPE_CHECKING:
    from visprism.core.loggers import Logger
    from visprism.core.run import Run
    from visprism.images.image_set import ImageSet
    from visprism.study.monitor import Monitor
    from visprism.training.job import Prepared
    from visprism.training.recipe import Recipe


# Flags that are fields of the recipe.
_FLAGS = {"epochs": "epochs", "limit": "limit", "lr": "lr", "batch_size": "batch_size"}
_FLAGS |= {"opt": "optimizer", "wd": "weight_decay", "freeze": "freeze", "patience": "patience"}


# Flags of other trainers that are not fields of a recipe.
_OTHERS = {
    **dict.fromkeys(("data_dir", "data_path", "dataset"), "--data"),
    **dict.fromkeys(("output", "output_dir", "default_root_dir"), "--out"),
    **dict.fromkeys(("img_size", "input_size", "train_crop_size"), "--size"),
    **dict.fromkeys(("j", "num_workers"), "--workers"),
    **dict.fromkeys(("initial_checkpoint", "weights", "ckpt_path"), "--model MODEL@FILE"),
    **dict.fromkeys(("val_split", "val_fraction"), "--validation"),
}


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Other values for fields of a recipe."""

    set: tuple[str, ...] = argument(
        (),
        "field of the recipe, such as lr=1e-3; repeatable (default: as in the recipe)",
        "FIELD=VALUE",
        repeatable=True,
    )

    def changed(self, name: str) -> "Recipe":
        """The recipe of this name with the changes."""
        from visprism.training.recipe import load_recipe

        changes: dict[str, Any] = {}
        for text in self.set:
            key, equals, value = text.partition("=")
            if not (equals and key):
                raise InputError(f"set must be FIELD=VALUE, such as lr=1e-3, got {text!r}")
            changes[key] = value
        for key, of_recipe in _FLAGS.items():
            if getattr(self, key, None) is not None:
                if of_recipe in changes:
                    flag = key.replace("_", "-")
                    raise InputError(f"{key} must be given once, by --{flag} or by --set")
                changes[of_recipe] = getattr(self, key)
        if getattr(self, "amp", False):
            changes["precision"] = "bf16"
        return load_recipe(name).replace(**changes)

    @classmethod
    def hint(cls, flag: str) -> str | None:
        """What does the same as a flag of another trainer."""
        from visprism.training.recipe import PLACEHOLDER, SYNONYMS, recipe_fields

        name = flag.lstrip("-").replace("-", "_")
        if name in _OTHERS:
            return f"Did you mean {_OTHERS[name]}?"
        if name == "num_classes":
            return "The number of classes is the data's."
        field = SYNONYMS.get(name, name)
        own = {of: flag for flag, of in _FLAGS.items()} | {"precision": "amp"}
        if field in own:
            return f"Did you mean --{own[field].replace('_', '-')}?"
        known = field in recipe_fields(PLACEHOLDER)
        return f"Did you mean --set {field}=VALUE?" if known else None


@dataclass(frozen=True, kw_only=True)
class Training(Changes, OnDevice, Sized):
    """What every training takes."""

    epochs: int | None = argument(
        None, "number of epochs, as --set epochs=N (default: as in the recipe)", minimum=1
    )
    limit: int | None = argument(
        None,
        "maximum number of training images, a stratified sample, as --set limit=N (default: "
        "as in the recipe)",
        minimum=1,
    )
    split: str | None = argument(
        None, "split to train on (default: train, or all images)", "NAME"
    )


@dataclass(frozen=True, kw_only=True)
class Recipes(Printing, Changes):
    """List training recipes, or print one as YAML."""

    group, epilog = "training", ""
    recipe: str | None = argument(
        None, "recipe to print as YAML (default: list all)", "RECIPE", positional=True
    )

    def run(self) -> None:
        """List the recipes, or print one."""
        from visprism.cli.catalog import described
        from visprism.training.recipe import RECIPES, as_yaml, recipe_fields

        if self.recipe is None:
            print_table(["recipe", "description"], described(RECIPES), as_json=self.json)
        elif self.json:
            print_json(recipe_fields(self.changed(self.recipe)))
        else:
            print(as_yaml(self.changed(self.recipe)), end="")


@dataclass(frozen=True, kw_only=True)
class Train(Printing, Training):
    """Train a model by a recipe."""

    group, epilog = "training", f"{MODEL}\n{DATA}"
    recipe: str = argument(
        REQUIRED, "recipe, a name of `visprism recipes` or FILE.yaml", "RECIPE", positional=True
    )
    model: str = argument(REQUIRED, "model, see below", "MODEL")
    data: str = argument(REQUIRED, "training data, see below", "DATA")
    out: Path = argument(REQUIRED, "output folder", "DIR")
    lr: float | None = argument(
        None, "learning rate, as --set lr=X (default: as in the recipe)", above=0
    )
    batch_size: int | None = argument(
        None,
        "images of one update, as --set batch_size=N (default: as in the recipe)",
        minimum=1,
    )
    opt: str | None = argument(
        None, "optimizer, as --set optimizer=NAME (default: as in the recipe)", "NAME"
    )
    wd: float | None = argument(
        None, "weight decay, as --set weight_decay=X (default: as in the recipe)", minimum=0
    )
    amp: bool = argument(False, "mixed precision, as --set precision=bf16 (default: fp32)")
    freeze: str | None = argument(
        None,
        "parts of the model that do not train, by name, or body: all but the last layer "
        "(default: none)",
        "A,B,...",
    )
    patience: int | None = argument(
        None,
        "epochs without a higher accuracy after which training ends (default: it never ends "
        "early)",
        minimum=0,
    )
    validation: float | None = argument(
        None,
        "fraction of the training images of each class that is held out and evaluated instead "
        "of a test split (default: 0.1 if the data has no test split)",
        minimum=0,
        below=1,
    )
    subset: float = argument(
        1.0, "fraction of the training images of each class", above=0, maximum=1
    )
    resume: bool = argument(
        False,
        "resume the run in DIR, if there is one; with more --epochs, extend it (default: "
        "refuse a folder with a run)",
    )
    test_data: str = argument(
        "", "data to evaluate on (default: the test split of DATA)", "DATA"
    )
    test_split: str | None = argument(
        None, "split to evaluate on (default: test, or val)", "NAME"
    )
    test_limit: int | None = argument(
        None, "maximum number of test images, a stratified sample (default: all)", minimum=1
    )
    teacher: str = argument(
        "", "teacher for knowledge distillation (default: none)", "MODEL@FILE"
    )
    pretrained: bool = argument(
        False,
        "start from published weights (default: as the recipe or the model's name says, such "
        "as resnet20.cifar10 or MODEL@FILE; else from random weights)",
    )
    skip_bad: bool = argument(
        False, "leave out images that cannot be read (default: refuse them)"
    )
    workers: int = argument(4, "processes that read images larger than 64 pixels", minimum=0)
    sharded: bool = argument(
        False,
        "shard parameters and optimizer over the processes of torchrun with FSDP (default: "
        "replicate them)",
    )
    checkpoint_minutes: float = argument(
        10.0, "minutes between training checkpoints within an epoch", "N", above=0
    )
    log: tuple[str, ...] = argument(
        (),
        "logger: csv, mlflow, tensorboard, trackio or wandb; repeatable (default: tensorboard "
        "if installed; history.csv is always written)",
        "NAME",
        repeatable=True,
    )
    watch: tuple[str, ...] = argument(
        (),
        "analyses of the network while it trains, on fixed test images; written to "
        "DIR/monitor (default: none)",
        "A,B,...",
    )
    watch_every: int = argument(500, "updates between two of them, at least", minimum=1)
    watch_share: float = argument(
        0.02, "largest fraction of the time that they take", above=0, maximum=1
    )
    watch_average: bool = argument(
        False, "measure the averaged weights (ema) of the recipe (default: those that train)"
    )

    def run(self) -> None:
        """Train, draw the learning curves, and print the outcome."""
        recipe = self.changed(self.recipe)  # before what takes seconds to import
        from visprism.core.processes import join_tasks, processes, rank
        from visprism.core.progress import console_progress
        from visprism.training.job import Job, train

        given = {"folder": self.out, "logs": self.log or None}
        shared = {f.name: getattr(self, f.name) for f in fields(Job) if f.name not in given}
        join_tasks()
        with on_interruption(self._remains), console_progress() as progress:
            run = self.new_run(progress)
            with processes(run.compute):
                is_first = rank() == 0
                lines = [_EpochLines(recipe)] if is_first else []
                history = train(
                    Job(**given, **shared),
                    recipe,
                    loggers=lines,
                    watch=partial(self._monitor, recipe, run) if self.watch else None,
                    say=_say if is_first else str,
                    run=run,
                )
                findings = self._draw_curves(history) if is_first else None
        if findings is not None and self.json:
            print_json({"out": str(self.out), "findings": findings})
        elif findings is not None:
            print(*findings, f"Wrote {self.out}", sep="\n")

    def _remains(self) -> str:
        from visprism.training.checkpointer import valid_checkpoint

        checkpoint = valid_checkpoint(self.out)
        if checkpoint is None:
            return "no training checkpoint was saved yet"
        return f"saved {checkpoint}; the same command with --resume resumes"

    def _monitor(
        self,
        recipe: "Recipe",
        run: "Run",
        prepared: "Prepared",
        images: "ImageSet",
        loggers: "Sequence[Logger]",
    ) -> "Monitor":
        from visprism.study.monitor import Monitor

        sam = {"sam_rho": recipe.sam_rho, "adaptive": recipe.adaptive}
        curvature = "training-curvature"
        return Monitor(
            images,
            self.watch,
            every=self.watch_every,
            share=self.watch_share,
            out=self.out / "monitor",
            log=loggers,
            options={curvature: sam} if curvature in self.watch else None,
            train_data=prepared.images,
            preprocessing=prepared.preprocessing,
            run=replace(run, progress=None),
        )

    def _draw_curves(self, history: Any) -> list[str]:
        """Draw the curves of a training; returns what they show."""
        from visprism.drawing.panel import panel
        from visprism.drawing.save import save_figure

        save_figure(panel([history]), self.out / "curves-loss")
        if history.evaluated:
            save_figure(panel([history], quantity="accuracy"), self.out / "curves-accuracy")
        return [str(finding) for finding in history.findings()]


def _say(sentence: str) -> None:
    """Print a sentence on stderr, as progress is."""
    print(sentence, file=sys.stderr, flush=True)


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
