"""Training: from a recipe to weights."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import processes, rank, world_size
from visprism.data import Feed
from visprism.models import save_checkpoint
from visprism.training.checkpointer import Checkpointer, Save
from visprism.training.divergence import Watch
from visprism.training.engine import Batch, Engine
from visprism.training.epoch_metrics import EpochMetrics, Test, metrics_of
from visprism.training.history import History
from visprism.training.loggers import Logger
from visprism.training.optimizers import check_optimizer
from visprism.training.recipe import Recipe
from visprism.training.schedules import learning_rate

Progress = Callable[[range, int], Iterable[int]]  # steps that are left, and of how many in all

_TOLD = 50  # steps between what loggers are told
_READ = 20  # steps between looks at the losses on a GPU, which would wait for each


def fit(
    model: nn.Module,
    train: Feed,
    recipe: Recipe,
    *,
    test: Test | None = None,
    folder: Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    teacher: nn.Module | None = None,
    loggers: Sequence[Logger] = (),
    device: str = "cpu",
    sharded: bool = False,
    minutes: float = 10.0,
    save: Save = save_checkpoint,
    named: Mapping[str, str] | None = None,
) -> History:
    """Train `model` in place and leave it in evaluation mode.

    What is drawn depends on the recipe's seed and the step alone. The same model, images and
    recipe give the same weights, bit for bit on one CPU, also when the run was killed and went
    on from the state in `folder`. Several processes under ``torchrun`` share every batch and
    make the update of one, to rounding, where no part of the model looks at a whole batch.

    In the folder stand ``last.ckpt`` (the state), ``recipe.yaml``, ``history.csv`` and
    ``.npz``, ``model.safetensors`` at the end, ``best.safetensors`` by test accuracy,
    ``ema.safetensors``, and ``snapshots/``.

    Costs, beside the updates, one pass over the test images after each epoch that the recipe
    names, two where a moving average is kept.

    Args:
        model: a classifier of (B, C, H, W) images, or one that gives two logits in training.
        train: gives the batches; its size of a batch is the recipe's.
        recipe: how to train.
        test: batches of images as the model wants them, with their classes; re-iterable.
        folder: where the run is kept; None: nowhere.
        resume: go on where the run in the folder stopped, if there is one.
        progress: wraps the range of steps to show how far it is.
        teacher: of distillation; it sees the images that the model sees.
        loggers: are told the loss every 50 steps, and each row of the history.
        device: as torch names it.
        sharded: share weights, gradients and the optimiser's state out among the processes,
            for what does not fit on one GPU. A copy is trained, and the model that was given,
            which stays where it lies (leave it on the CPU), has the weights in the end. A run
            begun so can go on otherwise, and the other way round.
        minutes: between states that are kept, beside those after every epoch.
        save: writes the weights of a model to a file, with the recipe and the last metrics.
        named: what else must be the same for a run to go on, by name, as the data's name.

    Raises:
        InputError: if feed and recipe, model and classes, or the run in the folder do not fit;
            if a loss or a weight stops being finite (step, learning rate and batch are named;
            the last good state is kept); if the state cannot be written; if what is to be
            sharded cannot be: by one process, compiled, with another optimiser than AdamW or
            SGD, with parameters that are tied or of several types.

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization; see `Recipe`.
    """
    _check(train, recipe, teacher, minutes, folder)
    compute = Compute(device, recipe.precision)
    check_optimizer(recipe, compute)
    with processes(compute):
        engine = Engine(model, recipe, compute, teacher, sharded=sharded)
        ledger = EpochMetrics()
        keeper = Checkpointer(
            folder, engine, ledger, train, save=save, minutes=minutes, named=named or {}
        )
        start = keeper.begin(resume=resume)
        watch = Watch(engine, ledger, train, keeper.where)
        steps = range(start, recipe.epochs * train.steps)
        batches = _batches(train, start, recipe.epochs, keeper.where)
        with engine.training():
            for step in (progress or _plain)(steps, recipe.epochs * train.steps):
                lr = learning_rate(step, train.steps, recipe)
                position = step % train.steps
                whole = min(train.batch_size, train.images - position * train.batch_size)
                watch.add(step, lr, engine.update(step, lr, next(batches), whole), whole)
                done = step + 1
                if done % (1 if compute.device == "cpu" else _READ) == 0:
                    watch.losses()
                ledger.tick(busy=True)
                if done % train.steps == 0:
                    watch.all()
                    asked = _asked(done // train.steps, recipe)
                    with _told_when(watch):
                        tested, found = metrics_of(engine, test if asked else None, compute)
                    row = ledger.close_epoch(done, lr, tested, found)
                    _tell(loggers, done, row)
                    keeper.after_epoch(done, row["test_accuracy"])
                else:
                    if done % _TOLD == 0:
                        watch.losses()
                        mean = ledger.loss / ledger.seen
                        speed = ledger.seen / max(ledger.busy, 1e-9)
                        values = {"loss": mean, "lr": lr, "images_per_second": speed}
                        _tell(loggers, done, values)
                    keeper.between(done, watch.all)
        keeper.end()
        engine.whole(engine.model)
    return ledger.history()


@contextmanager
def _told_when(watch: Watch) -> Iterator[None]:
    """What fails in an evaluation, as logits that overflow, is told with its step."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{error}; this was in the evaluation after {watch.where}") from error


def _check(
    train: Feed,
    recipe: Recipe,
    teacher: nn.Module | None,
    minutes: float,
    folder: Path | None,
) -> None:
    if not minutes >= 0:
        raise InputError(f"minutes is {minutes}; wants 0 or more between states")
    if recipe.snapshots and folder is None:
        raise InputError(
            f"recipe: snapshots is {recipe.snapshots}, and there is no folder to keep them in; "
            "give a folder, or take snapshots=0"
        )
    if train.batch_size != recipe.batch_size:
        raise InputError(
            f"the feed gives batches of {train.batch_size} images and the recipe wants "
            f"{recipe.batch_size}; make the feed with the recipe's batch_size"
        )
    if train.images < 1 or train.steps < 1:
        raise InputError("no images to train on; wants at least one batch of them")
    if (recipe.distil != "none") != (teacher is not None):
        what = "none is given" if teacher is None else "one is given"
        raise InputError(
            f"recipe: distil is {recipe.distil!r}, and of teachers {what}; name a teacher and "
            "distil=soft or distil=hard, or neither"
        )


def _batches(train: Feed, start: int, epochs: int, kept: Callable[[], str]) -> Iterator[Batch]:
    """Batches from a step on, epoch after epoch: what this process does of each.

    Where an image cannot be read, the error says what is `kept`.
    """
    epoch, position = divmod(start, train.steps)
    part = rank(), world_size()
    for number in range(epoch, epochs):
        try:
            yield from train.epoch(number, start=position, part=part)
        except InputError as error:
            raise InputError(f"{error}{kept()}") from error
        position = 0


def _asked(epoch: int, recipe: Recipe) -> bool:
    return epoch % recipe.evaluate == 0 or epoch == recipe.epochs


def _tell(loggers: Sequence[Logger], step: int, values: dict[str, float]) -> None:
    known = {name: value for name, value in values.items() if math.isfinite(value)}
    for logger in loggers if rank() == 0 else ():
        logger.log(step, known)


def _plain(steps: range, total: int) -> range:  # noqa: ARG001 (what shows progress wants it)
    return steps
