"""The training loop: from a recipe to weights."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn
from torch.optim import Optimizer

from visprism.core.errors import InputError
from visprism.core.loggers import Logger
from visprism.core.memory import reused_memory
from visprism.core.processes import processes, rank, world_size
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.images.training_batches import Feed
from visprism.models.checkpoints import save_checkpoint
from visprism.training.checkpointer import Checkpointer
from visprism.training.engine import Batch, Engine
from visprism.training.epoch_metrics import EpochMetrics, Test, evaluate
from visprism.training.history import History
from visprism.training.losses import label_loss
from visprism.training.optimizers import learning_rate
from visprism.training.recipe import Recipe
from visprism.training.vitals import Alarm, Vitals, store_alarms, stored_alarms

_CHECK_EVERY = 25  # steps between checks of the losses, for which a GPU must wait
_LOG_EVERY = 50  # steps between what loggers receive within an epoch
_CHECK_WEIGHTS = 500  # steps between checks of the weights, see `Vitals`
_sentences = logging.getLogger(__name__)
_REMEDY = " Try a lower lr, a longer warmup or a smaller clip."


@runtime_checkable
class Watch(Protocol):
    """What is called after each update of a training; `visprism.Monitor` is one."""

    def step(
        self,
        model: nn.Module,
        step: int,
        optimizer: Iterable[Optimizer],
        metrics: Mapping[str, float],
    ) -> object:
        """Look at the model after `step` updates, and leave it as it is."""
        ...


def fit(
    model: nn.Module,
    train: Feed,
    recipe: Recipe,
    *,
    test: Test | None = None,
    folder: Path | None = None,
    resume: bool = True,
    teacher: nn.Module | None = None,
    loggers: Sequence[Logger] = (),
    monitor: Watch | None = None,
    watch_average: bool = False,
    sharded: bool = False,
    checkpoint_minutes: float = 10.0,
    save: Callable[..., object] = save_checkpoint,
    names: Mapping[str, str] | None = None,
    run: Run = DEFAULT_RUN,
) -> History:
    """Train `model` in place and leave it in evaluation mode.

    All randomness depends only on the recipe's seed and the step. The same model, images and
    recipe give the same weights, bit for bit on one CPU, also if the run was killed and resumed
    from the training checkpoint in `folder`. Several processes under ``torchrun`` share every
    batch and make the update of one process, up to rounding, unless the model has BatchNorm or
    another layer that depends on the batch.

    The folder receives ``last.ckpt`` (the training checkpoint), ``recipe.yaml``,
    ``history.csv`` and ``history.npz``, ``model.safetensors`` at the end, ``best.safetensors``
    (highest test accuracy), ``ema.safetensors`` and ``snapshots/``.

    Costs one pass over the test images after each evaluated epoch besides the updates, or two
    with averaged weights.

    Args:
        model: a classifier of (B, C, H, W) images; in training it may return two logits, or a
            mapping with ``logits``.
        train: the batches; their size must be the recipe's.
        recipe: how to train. Its precision and seed are the run's.
        test: batches of preprocessed images with their classes; iterated once per evaluation.
        folder: where the run is stored; None: nowhere.
        resume: whether a run in the folder is resumed, if there is one.
        teacher: of distillation; it sees the images that the model sees.
        loggers: receive the loss every 50 steps, and each row of the history.
        monitor: is called after each update; a `Monitor` measures the model when it is due.
        watch_average: whether it is given the averaged weights, of a recipe that has them.
        sharded: whether weights, gradients and optimizer state are sharded over the processes,
            for models that do not fit on one GPU. A copy is trained, and the given model, which
            stays on its device (leave it on the CPU), receives the weights at the end. A
            sharded run can be resumed without sharding, and the reverse.
        checkpoint_minutes: minutes between training checkpoints, which are also written after
            every epoch.
        save: writes the weights of a model to a file, whole or not at all, as
            `save_checkpoint` with `recipe` and the last `metrics`.
        names: what else must be the same for a run to be resumed, such as the name of the data.
        run: device, progress over steps, deadline, and provenance of the history.

    If a loss or a weight is not finite, the error names step, learning rate and batch, and the
    last training checkpoint stays, as it does if the deadline of the run passes. A model cannot
    be sharded in one process, compiled, with an optimizer other than AdamW or SGD, or with
    parameters that are tied or of several types.

    Source: Loshchilov & Hutter (2019), Decoupled weight decay regularization; see `Recipe`.
    """
    folder = None if folder is None else Path(folder)
    _check(train, recipe, teacher, folder)
    if watch_average and not recipe.ema:
        raise InputError("ema of the recipe must be above 0 to watch averaged weights, got 0")
    run = _run_of_recipe(run, recipe)
    run = run if sharded else run.on(model)  # shards go to the accelerators
    with processes(run.compute), reused_memory(), ExitStack() as stack:
        images = train.targets.bincount(minlength=train.num_classes)
        losses_of = label_loss(recipe, images)
        engine = Engine(model, recipe, run.compute, teacher, losses_of, sharded=sharded)
        metrics = EpochMetrics()
        checkpointer = Checkpointer(
            folder,
            engine,
            metrics,
            train,
            save=save,
            checkpoint_minutes=checkpoint_minutes,
            names=names or {},
            provenance=_provenance(run, train, recipe),
        )
        stack.enter_context(closing(checkpointer))
        start = checkpointer.begin(resume=resume)
        guard = DivergenceGuard(engine, metrics, train)
        alarms = None
        if monitor is None:
            alarms = Alarms(
                start, train.num_classes, recipe.epochs * train.steps, folder, loggers
            )
        batches = _batches(train, start, recipe.epochs)
        with checkpointer.named_in_errors(), engine.training():
            for step in run.track(range(start, recipe.epochs * train.steps), "training"):
                if recipe.patience and metrics.since_best >= recipe.patience:
                    _sentences.warning(
                        "ended after epoch %d: the accuracy did not rise in %d evaluations",
                        len(metrics.rows),
                        recipe.patience,
                    )
                    break
                lr = learning_rate(step, train.steps, recipe)
                position = step % train.steps
                images = min(train.batch_size, train.images - position * train.batch_size)
                guard.add(step, lr, engine.update(step, lr, next(batches), images), images)
                done = step + 1
                due = (done % every == 0 for every in (_CHECK_EVERY, _LOG_EVERY, train.steps))
                read = monitor is not None or any(due)
                losses = guard.check_losses() if read else []
                metrics.tick(busy=True)
                if alarms is not None:
                    alarms.after(engine, done, losses)
                elif monitor is not None:
                    numbers = {"loss": losses[-1][1], "lr": lr}
                    averaged = engine.average if watch_average else None
                    watched = engine.model if averaged is None else averaged.module
                    monitor.step(watched, done, engine.optimizers, numbers)
                    metrics.tick()
                if done % train.steps == 0:
                    guard.check()
                    epoch = done // train.steps
                    due = epoch % recipe.eval_every == 0 or epoch == recipe.epochs
                    tested, values = guard.evaluate(test if due else None, run)
                    row = metrics.close_epoch(done, lr, tested, values)
                    _log(loggers, done, row)
                    checkpointer.after_epoch(done, row["test_accuracy"])
                else:
                    if done % _LOG_EVERY == 0:
                        speed = metrics.images_per_second
                        current = {"loss": metrics.mean_loss, "lr": lr}
                        _log(loggers, done, current | {"images_per_second": speed})
                    checkpointer.after_step(done, guard.check)
        if alarms is not None:
            alarms.end(engine)
        checkpointer.end()
        engine.full(engine.model)
        return metrics.history(checkpointer.provenance)


class Alarms:
    """The alarms of a training without a monitor: logged, and stored in its folder."""

    def __init__(
        self,
        start: int,
        classes: int,
        updates: int,
        folder: Path | None,
        loggers: Sequence[Logger],
    ) -> None:
        self._vitals = Vitals(_CHECK_WEIGHTS, classes, updates)
        self._folder, self._loggers = folder, loggers
        before = [] if folder is None else stored_alarms(folder)
        self._raised = [alarm for alarm in before if alarm.step <= start]

    def after(self, engine: Engine, step: int, losses: Iterable[tuple[int, float]]) -> None:
        """Check an update."""
        self._say(self._vitals.after(engine.model, step, engine.optimizers, losses))

    def end(self, engine: Engine) -> None:
        """Check the last update."""
        self._say(self._vitals.end(engine.model, engine.optimizers))

    def _say(self, alarms: Sequence[Alarm]) -> None:
        known = {alarm.code for alarm in self._raised}
        new = [alarm for alarm in alarms if alarm.code not in known]
        self._raised += new
        for alarm in new if rank() == 0 else ():
            _sentences.warning("%s", alarm)
            _log(self._loggers, alarm.step, {f"visprism/alarms/{alarm.code}": 1.0})
        if new and self._folder is not None and rank() == 0:
            store_alarms(self._folder, self._raised)


class DivergenceGuard:
    """Checks that losses, which a GPU may still compute, and weights are finite.

    `metrics` sums the losses that were checked.
    """

    def __init__(self, engine: Engine, metrics: EpochMetrics, train: Feed) -> None:
        self._engine, self._metrics, self._train = engine, metrics, train
        self._pending: list[tuple[int, str, Tensor, int]] = []
        self._place = ""  # of the last step

    def add(self, step: int, lr: float, total: Tensor, images: int) -> None:
        """Add the summed loss of a step, to be checked later."""
        epoch, batch = divmod(step, self._train.steps)
        last = self._engine.recipe.epochs * self._train.steps
        self._place = (
            f"step {step + 1} of {last} (epoch {epoch + 1}, batch {batch + 1}), learning rate "
            f"{lr:.2g}"
        )
        self._pending.append((step + 1, self._place, total, images))

    def check_losses(self) -> list[tuple[int, float]]:
        """Add the pending losses to the metrics; the loss of each of their updates."""
        losses = []
        for done, place, total, images in self._pending:
            loss = total.item() / images
            if not math.isfinite(loss):
                raise InputError(f"the loss must be finite, got {loss} at {place}.{_REMEDY}")
            self._metrics.loss += loss * images
            self._metrics.seen += images
            losses.append((done, loss))
        self._pending.clear()
        return losses

    def check(self) -> None:
        """Check the pending losses, and the weights after the last step."""
        self.check_losses()
        name = self._engine.nonfinite_weight()
        if name is not None:
            raise InputError(
                f"weights must be finite, but {name} is not after {self._place}.{_REMEDY}"
            )

    def evaluate(self, test: Test | None, run: Run) -> tuple[int, tuple[float, ...]]:
        """As `evaluate`; errors, such as of logits that overflow, name the step before."""
        try:
            return evaluate(self._engine, test, run)
        except InputError as error:
            raise InputError(f"{error} (in the evaluation after {self._place})") from error


def _run_of_recipe(run: Run, recipe: Recipe) -> Run:
    """The run with the precision and the seed of the recipe, which must not contradict them."""
    if run.compute.precision not in ("fp32", recipe.precision):
        raise InputError(
            f"precision must be the recipe's ({recipe.precision}), got "
            f"{run.compute.precision}. Set the precision of the recipe."
        )
    if run.seed not in (0, recipe.seed):
        raise InputError(
            f"seed must be the recipe's ({recipe.seed}), got {run.seed}. Set the seed of "
            "the recipe."
        )
    compute = replace(run.compute, precision=recipe.precision)
    return replace(run, compute=compute, seed=recipe.seed)


def _check(train: Feed, recipe: Recipe, teacher: nn.Module | None, folder: Path | None) -> None:
    if recipe.snapshot_every and folder is None:
        raise InputError(
            f"snapshot_every must be 0 without a folder, got {recipe.snapshot_every}. Give a "
            "folder to write snapshots."
        )
    if train.batch_size != recipe.batch_size:
        raise InputError(
            f"the batch_size of the feed must be the recipe's ({recipe.batch_size}), got "
            f"{train.batch_size}"
        )
    if (recipe.distillation != "none") != (teacher is not None):
        given = "without a teacher" if teacher is None else "with a teacher"
        raise InputError(
            "distillation must be 'soft' or 'hard' with a teacher and 'none' without, got "
            f"{recipe.distillation!r} {given}"
        )


def _provenance(run: Run, train: Feed, recipe: Recipe) -> Provenance:
    return replace(
        run.provenance,
        images=run.provenance.images or train.images,
        batch_size=recipe.batch_size,
        precision=recipe.precision,
        device=str(run.compute.torch_device),
        processes=world_size(),
        seed=recipe.seed,
    )


def _batches(train: Feed, start: int, epochs: int) -> Iterator[Batch]:
    """The local share of every batch, starting at step `start`, epoch after epoch."""
    epoch, position = divmod(start, train.steps)
    for number in range(epoch, epochs):
        yield from train.epoch(number, start=position, part=(rank(), world_size()))
        position = 0


def _log(loggers: Sequence[Logger], step: int, values: dict[str, float]) -> None:
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    for logger in loggers if finite and rank() == 0 else ():
        logger.log(step, finite)
