"""A monitor: analyses of a network while it trains, in any training loop."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from numbers import Integral
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from visprism.anatomy.trace.forward import without_replicas
from visprism.core.errors import InputError
from visprism.core.files import make_folder
from visprism.core.loggers import Logger, make_loggers
from visprism.core.options import EFFORTS, Effort
from visprism.core.preprocessing import Preprocessing
from visprism.core.processes import gather, rank, world_size
from visprism.core.request import DataOptions
from visprism.core.run import DEFAULT_RUN, Run, unchanged_randomness
from visprism.estimates.findings import Finding
from visprism.kit.analysis import ANALYSES, Analysis
from visprism.kit.inputs import candidates_of, subjects_of
from visprism.kit.model_on_images import Subject
from visprism.loss.training_curvature import evaluation_mode
from visprism.passes.batches import check_whole, images_of
from visprism.study.alarms import alarms_of
from visprism.study.events import silent
from visprism.study.examine import examine
from visprism.study.exports import scalars_of
from visprism.study.identity import fingerprint_of
from visprism.study.plan import duration, number_of_images, ordered_steps
from visprism.study.record import Header
from visprism.study.share import Group, agreed, waits
from visprism.study.steps import REPLACED, set_aside, step_folder, step_folders
from visprism.study.study import Study
from visprism.training.vitals import (
    Alarm,
    TrainingStoppedError,
    Vitals,
    dead_activations,
    store_alarms,
    stored_alarms,
    young_statistics,
)

WATCHED = ("fourier", "variance", "singular-values", "token-norms", "attention", "calibration")
_LOSSES = ("loss", "train_loss", "training_loss")  # names of the loss that is minimized
_READ_EVERY = 20  # updates after which losses that a GPU may still compute are read
_FEW = 32  # images of a check of the activations
_log = logging.getLogger(__name__)

Log = Callable[[int, Mapping[str, float]], object]  # of a step and the values by name


@dataclass(eq=False)
class Monitor:
    """Analyses of a network while it trains, on fixed images.

    Call `step` after each update of a training loop. When a measurement is due it is what
    `examine` measures of the model as it is, in evaluation mode. The model, its modes,
    gradients and running statistics, the optimizer and all states of random numbers stay as
    they are: the weights after training are the same, bit for bit on a CPU, with and without.

    A measurement is due after every `every` updates. All analyses are measured when the first
    one is due, and in `close`. In between, the analyses that share a pass are a group, each
    other one is its own group, and each of n groups has share / n of the time since the first
    call: it is measured when it is due and its time so far, with twice what the last
    measurement took, is within that. A costly analysis is measured less often, and no other
    waits for it. Finding the blocks of the model in the first call counts too.

    Outside of the share, each call checks the loss, and now and then the weights and the
    activations (`Alarm`), also of models that cannot be measured. An alarm is logged as a
    warning, stored in ``alarms.csv`` in `out`, given to the loggers, and listed in `alarms`.

    Nothing that a measurement, a full disk or a logger raises ends the training: one sentence
    is logged as a warning, and the training continues. If several processes train one model
    together, each calls `step` and `close`; they share the images, and the first writes. A
    monitor is of one network: a second network in the same loop has its own. In a ``with``
    statement, the monitor is closed at its end, also after an error.

    Args:
        data: the images, as `examine` takes them; the same in every measurement.
        analyses: names, classes, or instances with options.
        every: updates between measurements.
        share: largest fraction of the time that measurements take; 1: measure all when due.
        out: folder, in which ``step-00000500`` is the study after 500 updates, written whole or
            not at all; None keeps studies in memory only. A folder with studies is continued.
        log: what receives the numbers: names of loggers ("tensorboard" and "csv", which write
            into `out`, "mlflow", "trackio", "wandb"), objects with ``log(step, values)`` and
            ``close()``, or functions of the step and the values, such as
            ``lambda step, values: run.log(values, step=step)``.
        options: options by the name of the analysis.
        effort: on how many images each analysis runs; see `examine`.
        images: number, size and batch size of the images; at most 256 by default.
        on_alarm: a function of an `Alarm`, called at the first alarm of each kind (what it
            raises ends the training), or "stop": `step` raises `TrainingStoppedError`, at which
            `visprism train` and the callbacks of Lightning and Transformers end the training.
        updates: of the whole training, if known: a loss at chance is an alarm after a quarter.
        train_data: images for quantities of the training loss; by default `data`.
        preprocessing: resize, crop and normalization; see `examine`.
        run: device (by default the model's), precision and seed.
    """

    data: Any = field(repr=False)
    analyses: Iterable[str | Analysis | type[Analysis]] | Analysis | str = WATCHED
    every: int = field(default=500, kw_only=True)
    share: float = field(default=0.02, kw_only=True)
    out: Path | str | None = field(default=None, kw_only=True)
    log: Sequence[str | Logger | Log] | None = field(default=None, kw_only=True)
    on_alarm: Callable[[Alarm], object] | Literal["stop"] | None = field(
        default=None, kw_only=True
    )
    updates: int | None = field(default=None, kw_only=True)
    options: Mapping[str, Mapping[str, Any]] | None = field(default=None, kw_only=True)
    effort: Effort = field(default="quick", kw_only=True)
    images: DataOptions = field(default_factory=lambda: DataOptions(limit=256), kw_only=True)
    train_data: Any = field(default=None, kw_only=True, repr=False)
    preprocessing: Preprocessing | None = field(default=None, kw_only=True)
    run: Run = field(default=DEFAULT_RUN, kw_only=True)
    studies: dict[int, Study] = field(default_factory=dict, init=False, repr=False)  # by step
    seconds: float = field(default=0.0, init=False)  # that measurements of this process took
    alarms: list[Alarm] = field(default_factory=list, init=False, repr=False)
    _begin: float | None = field(default=None, init=False, repr=False)
    _planned: bool = field(default=False, init=False, repr=False)
    _groups: list[Group] = field(default_factory=list, init=False, repr=False)
    _subject: Subject | None = field(default=None, init=False, repr=False)
    _last: int = field(default=-1, init=False, repr=False)  # step of the last call
    _said: set[str] = field(default_factory=set, init=False, repr=False)
    _losses: list[tuple[int, Any]] = field(default_factory=list, init=False, repr=False)
    _pending: list[Alarm] = field(default_factory=list, init=False, repr=False)
    _activations: float = field(default=0.0, init=False, repr=False)  # seconds of their checks
    _latest: tuple[nn.Module, tuple[Optimizer, ...], dict[str, float]] | None = field(
        default=None, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.every, Integral) or self.every < 1:
            raise InputError(f"every must be an integer of at least 1, got {self.every!r}")
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, got {self.share}")
        if self.effort not in EFFORTS:
            raise InputError(f"effort must be one of {', '.join(EFFORTS)}, got {self.effort!r}")
        self._chosen = ANALYSES.chosen(self.analyses, self.options, self.effort)
        self.out = None if self.out is None else Path(self.out)
        log = () if self.log is None else self.log
        if isinstance(log, str) or not isinstance(log, Sequence):
            raise InputError(f"log must be a list of loggers, got {log!r}")
        names = [logger for logger in log if isinstance(logger, str)]
        if names and self.out is None:
            raise InputError(f"out must be a folder for the logger {names[0]}, got None")
        made = make_loggers(names, self.out, {}) if self.out and rank() == 0 else []
        given = [one for one in log if not isinstance(one, str)]
        self._loggers: list[Any] = [*made]
        for logger in given:
            if not callable(logger) and not isinstance(logger, Logger):
                raise InputError(f"log must be loggers, names or functions, got {logger!r}")
            self.add_logger(logger)
        if not (self.on_alarm in (None, "stop") or callable(self.on_alarm)):
            raise InputError(f'on_alarm must be a function or "stop", got {self.on_alarm!r}')
        self._vitals = Vitals(self.every)
        if self.out is not None and rank() == 0:
            make_folder(self.out)
            self._load()

    def _load(self) -> None:
        """Read what the folder holds."""
        if self.out is not None:
            self.studies = {s: Study.load(p) for s, p in step_folders(Path(self.out)).items()}
            self.alarms = stored_alarms(Path(self.out))

    def step(
        self,
        model: nn.Module,
        step: int,
        optimizer: Optimizer | Iterable[Optimizer] | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> Study | None:
        """Measure if it is due; call it after each update.

        Args:
            model: in training; its average, where that is to be measured. Within
                ``DistributedDataParallel`` and ``torch.compile`` the module inside is measured.
            step: number of updates so far.
            optimizer: that made the update, for analyses that read its state.
            metrics: numbers to store with the results, such as the loss.

        Returns:
            The study, if one was made.
        """
        step = int(step)
        if isinstance(optimizer, Mapping):
            raise InputError(
                "optimizer must be one or several optimizers, got a dictionary. Numbers to "
                "store are metrics=."
            )
        given = () if optimizer is None else optimizer
        optimizers = (given,) if isinstance(given, Optimizer) else tuple(given)
        first = self._begin is None
        if first:
            self._start(step)
        if not self._planned and (first or not step % self.every):
            with self._guarded(model, step):  # a fault is reported now, not at the first study
                self._plan(self._subject_of(model), step, optimizers)
                self._planned = True
            for group in self._groups:
                group.taken = self.seconds / len(self._groups)
        if step <= self._last:
            self._say_why_not(model, step)
            return None
        self._last = step
        numbers = dict(metrics or {})
        self._latest = (model, optimizers, numbers)
        self._raise(self._checked(model, step, optimizers, numbers), log=True)
        if self._is_stored(model, step) or step % self.every:
            return None
        self._raise(self._checked_activations(model, step), log=True)
        return self._measure(model, step, optimizers, numbers, self._affordable())

    def _start(self, step: int) -> None:
        """Begin with this update; processes agree on the folder of the first one."""
        self._begin = time.perf_counter()
        self._vitals.updates = self.updates
        if world_size() > 1:
            self.out = agreed(self.out, self._say)
            if rank() > 0:
                self._load()
        self.alarms = [alarm for alarm in self.alarms if alarm.step < step]

    def _say_why_not(self, model: nn.Module, step: int) -> None:
        """Say why an update that does not come after the last one is not looked at."""
        latest = self._latest and self._latest[0]
        if step == self._last and latest is not None and latest is not model:
            self._say(
                f"step {step}: another network came with the same step. A Monitor is of one "
                "network: give each network its own Monitor, with its own folder.",
                of="two networks",
            )
        elif step < self._last:
            self._say(
                f"step must not decrease, got {step} after {self._last}. A new run needs a "
                "Monitor with another folder.",
                of="step decreases",
            )

    def _checked(
        self,
        model: nn.Module,
        step: int,
        optimizers: Sequence[Optimizer],
        numbers: Mapping[str, Any],
    ) -> list[Alarm]:
        """The new alarms of losses and weights. Losses on a GPU are read every 20 updates."""
        named = [n for n in numbers if n.rpartition("/")[2] in _LOSSES]
        if named:  # one of several, which may have other scales
            self._losses.append((step, numbers["loss" if "loss" in named else named[0]]))
        on_cpu = not any(
            isinstance(x, Tensor) and x.device.type != "cpu" for _, x in self._losses
        )
        losses: list[tuple[int, float]] = []
        if on_cpu or len(self._losses) >= _READ_EVERY or step % self.every == 0:
            losses = [(at, x) for at, value in self._losses for x in self._numbers([value])]
            self._losses.clear()
        found: list[Alarm] = []
        try:
            found = self._vitals.after(_bare(model), step, optimizers, losses)
        except Exception as error:  # whatever a model raises
            self._say(f"step {step}, its weights are not checked: {error!r}", of="checks")
        if world_size() == 1:
            return found
        self._pending += found
        if step % self.every:  # processes see other losses, and meet only now
            return []
        found, self._pending = [a for of in gather(self._pending) for a in of], []
        return found

    def _checked_activations(self, model: nn.Module, step: int) -> list[Alarm]:
        """The new alarms of activations, within a tenth of the share."""
        assert self._begin is not None
        elapsed = time.perf_counter() - self._begin
        if not self._planned or self._activations > self.share / 10 * elapsed:
            return []
        begin, found = time.perf_counter(), []
        with self._guarded(model, step):
            subject = self._subject_of(model)
            batch = next(iter(subject.batches(_FEW)), None)
            if batch is not None:
                images = images_of(batch, subject.anatomy, self.run.compute.on(subject.model))
                found = dead_activations(subject.model, images)
        self._activations += time.perf_counter() - begin
        return self._vitals.new(step, found)

    def _measure(
        self,
        model: nn.Module,
        step: int,
        optimizers: Sequence[Optimizer],
        numbers: Mapping[str, Any],
        groups: Sequence[Group],
    ) -> Study | None:
        """Measure groups of analyses, if there are any."""
        if not groups:
            return None
        study, alarms = None, []
        before = self.seconds
        with self._guarded(model, step):
            names = {name for group in groups for name in group.names}
            chosen = [a.at_step(step, optimizers) for a in self._chosen if a.name in names]
            study, alarms = self._measured(model, step, chosen, numbers)
        took = [group.seconds_in(study) for group in groups]
        shared = self.seconds - before - sum(took)
        for group, seconds in zip(groups, took, strict=True):
            group.expected = seconds + shared
            group.taken += seconds + shared / len(groups)
            group.measured = True
        self._raise(alarms)
        return study

    def _raise(self, alarms: Iterable[Alarm], *, log: bool = False) -> None:
        """Say, store and log alarms whose kind is new; `log`: they are not in a study."""
        known = {alarm.code for alarm in self.alarms}
        new = list({a.code: a for a in reversed(list(alarms)) if a.code not in known}.values())
        self.alarms += new
        for alarm in new:
            self._say(str(alarm))
            values = {f"visprism/alarms/{alarm.code}": 1.0}
            for logger in self._loggers if log and rank() == 0 else ():
                self._try(partial(logger.log, alarm.step, values), _not_logged(logger))
        if new and self.out is not None and rank() == 0:
            self._try(partial(store_alarms, Path(self.out), self.alarms), "alarms not stored")
        for alarm in new:
            if self.on_alarm == "stop":
                raise TrainingStoppedError(f"the training is stopped at {alarm}")
            if self.on_alarm is not None:
                self.on_alarm(alarm)

    def add_logger(self, logger: Logger | Log) -> None:
        """Give the numbers of the next measurements to one more logger, or function."""
        if not isinstance(logger, Logger):  # who gave the function ends what it writes to
            logger = SimpleNamespace(log=logger, close=lambda: None, name=_named(logger))
        self._loggers.append(logger)

    def close(self) -> None:
        """Measure the network after the last update if that was not done, and end the loggers.

        Errors of the network or the loggers are sentences in the log, as in `step`.
        """
        try:
            if self._latest is not None:
                model, optimizers, numbers = self._latest
                self._latest = None
                self._raise(
                    self._pending + self._vitals.end(_bare(model), optimizers), log=True
                )
                if self._last not in self.studies:
                    self._raise(self._checked_activations(model, self._last), log=True)
                    self._measure(model, self._last, optimizers, numbers, self._groups)
        finally:
            self._end_loggers()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Close; after an error of the training without a measurement."""
        if kind is None:
            self.close()
        else:
            self._end_loggers()

    def _end_loggers(self) -> None:
        for logger in self._loggers:
            self._try(logger.close, f"{_named(logger)} is not closed")

    def _is_stored(self, model: nn.Module, step: int) -> bool:
        """Whether the step was measured, of these weights.

        If they are of other weights, as of another training, or of one that is resumed and has
        other rounding, the studies from here on are set aside.
        """
        if step not in self.studies:
            return False
        stored = self.studies[step].header.get("weights", {}).values()
        with self._guarded(model, step):
            now = fingerprint_of(self._subject_of(model).model)
            if now not in [weights["fingerprint"] for weights in stored]:
                self._say(
                    f"step {step}: the weights differ from those that were measured in "
                    f"{self.out}, whose studies from this step on move to {REPLACED}/",
                    of="other weights",
                )
                self.studies = {n: study for n, study in self.studies.items() if n < step}
                if self.out and rank() == 0:
                    set_aside(Path(self.out), step)
                return False
        return True

    def _plan(self, subject: Subject, step: int, optimizers: Sequence[Optimizer]) -> None:
        """Group the analyses that apply by their passes, with the seconds they should take."""
        now = [analysis.at_step(step, optimizers) for analysis in self._chosen]
        reasons = {analysis.name: analysis.inapplicable(subject) for analysis in now}
        for name, reason in reasons.items():
            if reason and self.analyses is not WATCHED:
                self._say(f"{name} is not measured: {reason}")
        now = [analysis for analysis in now if not reasons[analysis.name]]
        images = {a.name: number_of_images(a, [subject], self.effort)[0] for a in now}
        steps = ordered_steps(now, images, [subject])
        self._groups = [Group.of(step, [*self.studies.values()]) for step in steps]
        if subject.images.targets is not None and not subject.without_classes():
            self._vitals.classes = subject.num_classes

    def _affordable(self) -> list[Group]:
        """The groups that were not measured yet, or that the share has room for."""
        assert self._begin is not None
        elapsed = time.perf_counter() - self._begin
        affordable = []
        for group, wait in zip(
            self._groups, waits(self._groups, self.share, elapsed), strict=True
        ):
            if wait <= 0 or self.share == 1 or not group.measured:
                affordable.append(group)
                continue
            between = group.expected * len(self._groups) / self.share
            self._say(
                f"{group}: a measurement takes about {duration(group.expected)}, so that "
                f"share={self.share:g} has room for one every {duration(between)}, not every "
                f"{self.every} steps. The next one comes in about {duration(wait)}.",
                of=str(group),
            )
        return affordable

    @contextmanager
    def _guarded(self, model: nn.Module, step: int) -> Iterator[None]:
        """Inside, a measurement changes nothing, and no error of it ends the training."""
        begin = time.perf_counter()
        try:
            with unchanged_randomness(), evaluation_mode(model):
                yield
        except (Exception, SystemExit) as error:  # whatever a model raises
            reason = str(error) if isinstance(error, InputError | OSError) else repr(error)
            self._say(f"step {step} is not measured: {reason}", of=reason)
        finally:
            self.seconds += time.perf_counter() - begin

    def _measured(
        self,
        model: nn.Module,
        step: int,
        analyses: Sequence[Analysis],
        metrics: Mapping[str, Any],
    ) -> tuple[Study, list[Alarm]]:
        subject = self._subject_of(model)
        if not all(p.isfinite().all() for p in subject.model.parameters()):
            raise InputError("its weights are not finite, as in a training that has diverged")
        numbers = {n: x for n, value in metrics.items() for x in self._numbers([value])}
        training = subject.training_images
        study = examine(
            {subject.name: subject.anatomy},
            subject.images,
            analyses=analyses,
            effort=self.effort,
            train_data=None if training is subject.images else training,
            preprocessing=self.preprocessing,
            **vars(replace(self.images, split=None, limit=None)),
            run=self.run,
            listener=silent,
        )
        young = young_statistics(subject.model)
        header: Header = {**study.header, "step": step, "metrics": {**numbers}}
        header["young_statistics"] = young
        study = replace(study, header=header)
        findings = alarms_of([*self.studies.values(), study])
        study = replace(study, header={**header, "alarms": [str(alarm) for alarm in findings]})
        self.studies[step] = study
        if rank() == 0:
            if self.out is not None:
                folder = step_folder(Path(self.out), step)
                self._try(partial(study.save, folder), "not stored")
            self._log(study, step, findings)
        for failure in study.failures:
            self._say(f"step {step}: {failure.analysis} is not measured: {failure.reason}")
        return study, [Alarm(step, one.code, one.text) for one in findings]

    def _log(self, study: Study, step: int, findings: Sequence[Finding]) -> None:
        """Give the numbers, the metrics and alarms to the loggers."""
        values = scalars_of(study)
        values |= {
            f"visprism/metrics/{n}": x
            for n, x in study.header["metrics"].items()
            if x is not None
        }
        values |= {f"visprism/alarms/{finding.code}": 1.0 for finding in findings}
        values = {name: value for name, value in values.items() if isfinite(value)}
        for logger in self._loggers:
            self._try(partial(logger.log, step, values), _not_logged(logger))

    def _numbers(self, values: Iterable[Any]) -> Iterator[float]:
        """The values that are numbers."""
        for value in values:
            try:
                yield float(value.detach() if isinstance(value, Tensor) else value)
            except (TypeError, ValueError, RuntimeError) as error:
                self._say(f"a metric must be a number: {error}. It is left out.")

    def _subject_of(self, model: nn.Module) -> Subject:
        """The model, dissected once, with the images."""
        module = _bare(model)
        if self._subject is None or self._subject.model is not module:
            if self._subject is not None:
                self._say(
                    f"step {self._last}: the model is another object than before and is taken "
                    "for the same network. Another one needs a Monitor with another folder.",
                    of="another object",
                )
            check_whole(module)
            (subject,) = subjects_of(
                candidates_of(module, run=self.run),
                self.data if self._subject is None else self._subject.images,
                self.train_data if self._subject is None else self._subject.training_images,
                self.images if self._subject is None else replace(self.images, split=None),
                preprocessing=self.preprocessing,
                run=self.run,
            )
            self._check_images(subject)
            self._subject = subject
        return self._subject

    def _check_images(self, subject: Subject) -> None:
        stored = {s.header.get("images") for s in self.studies.values()}
        if stored - {subject.images.fingerprint()}:
            raise InputError(
                f"{self.out} must hold studies of the same images in the same order. Choose "
                "another folder."
            )

    def _try(self, action: Callable[[], object], fault: str) -> None:
        """Do what may fail without an end of the training."""
        try:
            action()
        except Exception as error:  # of any library
            self._say(f"step {self._last}, {fault}: {error}", of=fault)

    def _say(self, text: str, *, of: str = "") -> None:
        """Log a sentence once, in the first process."""
        if (of or text) not in self._said and rank() == 0:
            _log.warning("%s", text)
        self._said.add(of or text)


def _bare(model: nn.Module) -> nn.Module:
    """The module inside replicas and what is compiled within or around them."""
    module = without_replicas(getattr(model, "_orig_mod", model))
    return getattr(module, "_orig_mod", module)


def _not_logged(logger: Any) -> str:
    return f"not logged by {_named(logger)}"


def _named(logger: Any) -> str:
    of = logger if callable(logger) else type(logger)
    return getattr(logger, "name", "") or getattr(of, "__qualname__", repr(of))
