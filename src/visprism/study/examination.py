"""One examination: what a study measures, in which order, and what it keeps."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

from visprism.analyses.base import ANALYSES, Analysis, FeatureAnalysis, Needs
from visprism.analyses.subject import Measured, Subject
from visprism.anatomy.trace.forward import forward
from visprism.anatomy.trace.operations import tensors_in
from visprism.core.errors import InputError, OutputError
from visprism.core.options import Effort, option_values
from visprism.core.processes import gather
from visprism.core.provenance import bytes_of, machine, revision
from visprism.core.run import Run, TimeBudgetError
from visprism.passes.batches import on_device
from visprism.passes.features import observations
from visprism.study.events import Finished, Listener, Planned, Started, Stopped, silent
from visprism.study.plan import Plan, Speed, Step, duration, number_of_images, ordered_steps
from visprism.study.store import Store, key_of
from visprism.study.study import FROM_PYTHON, Entry, Failure, Kind, Study
from visprism.study.table import pairs_of
from visprism.table.result import Result

_NO_DERIVATIVES = {torch.bfloat16, torch.float16, torch.complex64, torch.complex128}
_LONGEST = 500  # characters of a reason
_NUMBERS = 64  # of the outputs, that are stored and compared
_APART = 1e-2  # relative; batches of another size are added up in another order
_RTOL, _ATOL = 1e-3, 1e-5  # rounding differs between machines and numbers of threads


def fingerprint_of(model: nn.Module) -> str:
    """A digest of the parameters, the buffers, the structure and the code of a model.

    For each module it covers the methods of its class, unless it is one of torch, and
    attributes that are numbers, strings or tuples of these.
    """
    digest = blake2b(str(model).encode(), digest_size=16)
    codes: dict[type, str] = {}
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in codes:
            codes[kind] = code_of(kind)
        settings = {k: v for k, v in sorted(vars(module).items()) if _is_setting(k, v)}
        digest.update(f"{name}{codes[kind]}{settings}".encode())
    for name, value in model.state_dict().items():
        for tensor in tensors_in(value):  # quantized layers hold theirs in tuples
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(bytes_of(tensor))
    return digest.hexdigest()


def code_of(cls: type) -> str:
    """A digest of the methods of a class and of its bases outside of torch and Python."""
    digest = blake2b(digest_size=16)
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing"):
            continue
        for name, value in sorted(vars(base).items()):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType):
                digest.update(f"{name}{_code_text(function.__code__)}".encode())
    return digest.hexdigest()


def plug_in_code(cls: type[Analysis]) -> str:
    """A digest of the file of an analysis outside of visprism, or of its class without a file.

    Empty for analyses of visprism, which its version covers.
    """
    if cls.__module__.partition(".")[0] == "visprism":
        return ""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if path is None or not Path(path).is_file():
        return code_of(cls)
    return blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def _code_text(code: CodeType) -> str:
    """What a function does, without the places of its lines."""
    constants = [
        _code_text(c)
        if isinstance(c, CodeType)
        else repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return repr((code.co_code, constants, code.co_names, code.co_varnames))


def _is_setting(name: str, value: Any) -> bool:
    """Whether an attribute of a module is a plain value that `forward` may use."""
    values = value if isinstance(value, tuple | list) else (value,)
    plain = all(isinstance(v, bool | int | float | str | None) for v in values)
    return plain and name != "training" and not name.startswith("_")


def outputs_of(subject: Subject, run: Run) -> list[float]:
    """The first numbers of what a model returns for its first images.

    Weights and methods do not tell everything that `forward` uses; outputs do. An image's
    outputs must not depend on the others of its batch, since analyses cut batches differently.

    Cost: two forward passes of at most two images, and one of each.
    """
    few = subject.limited(min(2, subject.num_images))
    both, *each = (
        batch[0] if isinstance(batch, tuple | list) else batch
        for number in (2, 1)
        for batch in few.batches(number)
    )
    with torch.no_grad(), run.compute.borrow(subject.model):
        outputs, again, *alone = (
            forward(subject.model, on_device(images, run.compute))
            for images in (both, both, *each)
        )
    alone = torch.cat(alone)
    if alone.shape != outputs.shape:
        raise InputError(
            f"outputs of {subject.name} must have one row for each image, and a single image "
            f"has {len(alone) // len(each)}. squeeze() drops the axis of a single image; "
            "flatten(1) keeps it."
        )
    least = _APART * float(alone.abs().max())
    if float((outputs - again).abs().max()) > least:
        raise InputError(
            f"outputs of {subject.name} must be the same in every pass over the same images. "
            "In evaluation mode it must draw no random numbers, and not change its buffers."
        )
    apart = float((outputs - alone).abs().max())
    if apart > least:
        raise InputError(
            f"outputs of {subject.name} for an image must not depend on other images of its "
            f"batch, and differ by {apart:.3g} in a batch of one. `predict` measures it in "
            "the batches of a loader."
        )
    return outputs.flatten()[:_NUMBERS].cpu().double().tolist()


def version_of(outputs: Sequence[float], earlier: list[Sequence[float | None]]) -> int:
    """Index of the outputs among outputs of earlier runs, to which new ones are added."""
    for index, stored in enumerate(earlier):
        if len(stored) == len(outputs) and np.allclose(
            outputs, np.array(stored, dtype=float), rtol=_RTOL, atol=_ATOL, equal_nan=True
        ):
            return index
    earlier.append(list(outputs))
    return len(earlier) - 1


_UNTRAINED = "the model has random weights. Name the analysis to run it anyway."
Place = tuple[tuple[str, ...], str]  # models and analysis
LATE = "A longer time limit measures it; a study with a folder resumes."


@dataclass
class Examination:
    """The state of a study while it is made."""

    subjects: Sequence[Subject]
    analyses: Sequence[Analysis]
    run: Run
    store: Store
    notify: Listener
    on_error: str
    named: bool  # whether the user named the analyses
    effort: Effort
    budget: float | None = None  # seconds
    entries: dict[Place, Entry] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    identities: dict[str, tuple[str, int]] = field(default_factory=dict)  # by name of the model
    refused: dict[str, Failure] = field(default_factory=dict)  # of models without one
    contents: dict[str, list[str]] = field(default_factory=dict)  # by analysis and options
    applicable: dict[str, list[Subject]] = field(default_factory=dict)  # by analysis
    superseded: int = 0  # stored results of these names that another model, or way, gave

    def perform(self) -> None:
        """Plan and measure; what an interruption leaves is complete as far as it goes."""
        for name in ("keys", "models"):  # an interrupted study has no complete list
            self.store.header.pop(name, None)
        for subject in self.subjects:
            try:
                self._identity(subject)
            except Exception as error:  # a model may raise anything
                self._raise_or_go_on(error)
                self.refused[subject.name] = self._failure(subject.name, "", error)
        stored = self._stored()
        steps = self._steps(stored)
        for analysis in (a for step in steps for a in step.analyses):
            for models, name in stored:
                if name == analysis.name:
                    key = self._key(analysis, self._of(models, self._images(analysis)))
                    if key in stored[models, name]:
                        self._resume(key)
        plan = self._plan(steps)
        self.notify(Planned(plan, self._preparation()))
        for entry in self.entries.values():
            self.notify(Finished(entry, resumed=True))
        after = plan.seconds
        for step in plan.steps:
            after -= step.total
            self._measure(step, after)
        self._show_others(stored)

    def _show_others(self, stored: Mapping[Place, Sequence[str]]) -> None:
        """Show what is stored of other sizes or options where nothing else is there."""
        for models, name in sorted(stored, key=lambda place: len(place[0])):
            if (models, name) in self.entries:
                continue
            for key in reversed(stored[models, name]):
                if self._belongs(key):
                    self._resume(key)
                    self.notify(Finished(self.entries[models, name], resumed=True))
                    break
        for key in self.store.damaged:
            entry = self.store.entries[key]
            place = tuple(entry["models"]), entry["analysis"]
            if place not in self.entries and place[1] not in self.applicable:
                self._fail(self.store.lost(key))

    # What is planned.

    def _steps(self, stored: Mapping[Place, Sequence[str]]) -> list[Step]:
        """The steps of what applies, and is not beyond the effort unless it is named."""
        images = self.store.header.setdefault("sizes", {})
        for analysis in self.analyses:
            failures = {s.name: self._inapplicable(analysis, s) for s in self.subjects}
            fitting = [s for s in self.subjects if not failures[s.name]]
            self.applicable[analysis.name] = fitting
            for failure in filter(None, failures.values()):
                self._fail(failure)
            if not fitting:  # of which the cost need not be known
                continue
            number, beyond = number_of_images(analysis, self.subjects, self.effort)
            for name in _names(fitting):
                if beyond and not self.named and ((name,), analysis.name) not in stored:
                    self._fail(Failure(name, analysis.name, beyond, "effort"))
            if beyond and not self.named:
                self.applicable[analysis.name] = []
            # A study keeps its sizes when a larger model joins it.
            images.setdefault(self._request(analysis), number)
        wanted = [a for a in self.analyses if self.applicable[a.name]]
        return ordered_steps(wanted, {a.name: self._images(a) for a in wanted}, self.subjects)

    def _request(self, analysis: Analysis) -> str:
        return f"{analysis.name} {self.effort} {json.dumps(option_values(analysis))}"

    def _images(self, analysis: Analysis) -> int:
        return self.store.header["sizes"][self._request(analysis)]

    def _plan(self, steps: Sequence[Step]) -> Plan:
        """The steps with the seconds of what is not stored."""
        late = [s for s in self.subjects if any(self._missing(step, s) for step in steps)]
        late = [] if self.notify is silent else late
        speeds, shown = {}, self.store.header.setdefault("speed", {})
        for subject in late:
            try:
                speeds[subject.name] = Speed.of(subject, self.run)
                shown[subject.name] = Speed.timings(subject, self.run)
            except Exception as error:  # without memory, as measurements will say
                self._raise_or_go_on(error)
        planned = []
        for step in steps:
            seconds, stored = {}, set()
            for subject in self._subjects(step):
                wanted = self._missing(step, subject)
                speed = speeds.get(subject.name, Speed(0.0))
                seconds[subject.name] = (
                    speed.seconds(wanted, subject.limited(step.images)) if wanted else 0.0
                )
                stored |= set() if wanted else {subject.name}
            comparing = [
                analysis.comparison_cost(s.limited(step.images)).seconds(
                    step.images, speeds[s.name].forward if s.name in speeds else 0.0
                )
                for analysis in step.analyses
                for pair in pairs_of(self.applicable[analysis.name])
                if (_names(pair), analysis.name) not in self.entries
                for s in pair
            ]
            planned.append(
                replace(
                    step,
                    seconds=seconds,
                    comparing=sum(comparing, start=0.0),
                    stored=frozenset(stored),
                )
            )
        return Plan(tuple(planned), self.effort, self.budget)

    def _subjects(self, step: Step) -> list[Subject]:
        return [s for s in self.subjects if any(self._applies(a, s) for a in step.analyses)]

    def _applies(self, analysis: Analysis, subject: Subject) -> bool:
        return any(s.name == subject.name for s in self.applicable[analysis.name])

    def _missing(self, step: Step, subject: Subject) -> list[Analysis]:
        return [
            a
            for a in step.analyses
            if self._applies(a, subject) and ((subject.name,), a.name) not in self.entries
        ]

    def _preparation(self) -> tuple[str, ...]:
        """How models are given images, and which stored results are not used."""
        again = [
            f"{reason}; it is measured again"
            for key, reason in self.store.damaged.items()
            if self.store.entries[key]["analysis"] in self.applicable
        ]
        if self.superseded:
            again.append(
                f"stored results of these models that are not shown: {self.superseded}, of "
                "other weights, code, preprocessing, precision or batch size; they stay in "
                f"{self.store.folder}"
            )
        bad = self.subjects[0].images.skipped
        named = ", ".join(bad[:3]) + ", ..." * (len(bad) > 3)
        left_out = [f"unreadable images left out ({len(bad)}): {named}"] if bad else []
        return (*(s.preparation(self.run) for s in self.subjects), *left_out, *again)

    def _inapplicable(self, analysis: Analysis, subject: Subject) -> Failure | None:
        if subject.name in self.refused:
            return replace(self.refused[subject.name], analysis=analysis.name)
        try:
            reason = self._reason_to_skip(analysis, subject)
        except Exception as error:
            self._raise_or_go_on(error)
            return self._failure(subject.name, analysis.name, error)
        return Failure(subject.name, analysis.name, reason, "skipped") if reason else None

    def _reason_to_skip(self, analysis: Analysis, subject: Subject) -> str | None:
        if Needs.TWO_MODELS in analysis.needs and len(self.subjects) < 2:
            return "it compares models, and the study has one"
        if analysis.needs & Needs.TRAINED and not subject.trained and not self.named:
            return _UNTRAINED
        cost, precision = analysis.cost(subject), self.run.compute.precision
        if (cost.gradients or cost.products) and precision != "fp32":
            return f"precision must be 'fp32' for derivatives of the loss, got {precision!r}"
        kinds = {p.dtype for p in subject.model.parameters() if p.dtype in _NO_DERIVATIVES}
        if (cost.gradients or cost.products) and kinds:
            return (
                "parameters must be float32 for derivatives of the loss, got "
                f"{str(kinds.pop()).removeprefix('torch.')}. model.float() converts half "
                "precision"
            )
        return analysis.inapplicable(subject)

    # What is measured.

    def _measure(self, step: Step, seconds_after: float) -> None:
        for subject in self._subjects(step):
            missing = self._missing(step, subject)
            if missing and self._has_time(subject.name, missing, step, seconds_after):
                self._measure_one(missing, subject.limited(step.images))
            subject.release()
        for analysis in step.analyses:
            self._compare(analysis, step.images)

    def _has_time(
        self, model: str, analyses: Sequence[Analysis], step: Step, seconds_after: float
    ) -> bool:
        """Whether the time limit has room; what begins is announced, the rest is listed."""
        seconds = step.seconds[model]
        if gather(self.run.seconds_left)[0] < seconds:
            reason = (
                f"{step.images} image{'s' if step.images != 1 else ''} would take about "
                f"{duration(seconds)}, and less is left of the time limit. {LATE}"
            )
            for analysis in analyses:
                self._fail(Failure(model, analysis.name, reason, "no time"))
            return False
        waiting = list(step.seconds)[list(step.seconds).index(model) + 1 :]
        left = sum((step.seconds[name] for name in waiting), start=step.comparing)
        names = tuple(a.name for a in analyses)
        self.notify(Started(model, names, step.images, seconds, left + seconds_after))
        return True

    def _measure_one(self, analyses: Sequence[Analysis], subject: Subject) -> None:
        begin, again = time.monotonic(), list[Analysis]()
        training = any(Needs.TRAINING_IMAGES in a.needs for a in analyses)
        run = subject.named(self.run, training=training)
        try:
            results = _measured(analyses, subject, run)
            for analysis, of_analysis in zip(analyses, results, strict=True):
                self._keep(analysis, (subject,), of_analysis, time.monotonic() - begin)
        except Exception as error:  # a model may raise anything
            self._raise_or_go_on(error)
            if len(analyses) > 1:
                again += analyses  # one that cannot be measured costs no other
            else:
                self._fail(self._failure(subject.name, analyses[0].name, error))
        for analysis in again:  # the error is gone, and with it the memory of its frames
            self._measure_one([analysis], subject)

    def _compare(self, analysis: Analysis, images: int) -> None:
        singles = {n: self.entries.get(((n,), analysis.name)) for n in self._names}
        for pair in pairs_of([s for s in self.subjects if singles[s.name]]):
            names = _names(pair)
            if (names, analysis.name) in self.entries:
                continue
            pair = tuple(s.limited(images) for s in pair)
            results = ((s, singles[s.name]) for s in pair)
            first, second = (Measured(s, entry.results) for s, entry in results if entry)
            begin = time.monotonic()
            try:
                compared = analysis.compare(first, second, pair[0].named(self.run))
                if compared:
                    self._keep(analysis, pair, compared, time.monotonic() - begin)
            except Exception as error:
                self._raise_or_go_on(error)
                self._fail(self._failure(" and ".join(names), analysis.name, error))
            for subject in pair:
                subject.release()

    def _raise_or_go_on(self, error: Exception) -> None:
        if self.on_error == "raise" or isinstance(error, OutputError):
            raise error

    # What is kept.

    @property
    def _names(self) -> tuple[str, ...]:
        return _names(self.subjects)

    def _keep(
        self,
        analysis: Analysis,
        subjects: Sequence[Subject],
        results: Sequence[Result],
        seconds: float,
    ) -> None:
        entry = Entry(
            _names(subjects),
            analysis.name,
            tuple(results),
            option_values(analysis),
            subjects[0].num_images,
            seconds,
            key=self._key(analysis, subjects),
        )
        self.store.put(entry)
        self.entries[entry.models, entry.analysis] = entry
        self.notify(Finished(entry, resumed=False))

    def _stored(self) -> dict[Place, list[str]]:
        """Keys of stored results of these models, in this order; the latest last."""
        types: dict[str, Any] = {**ANALYSES, **{a.name: type(a) for a in self.analyses}}
        stored: dict[Place, list[str]] = {}
        for key, entry in self.store.entries.items():
            models, name = tuple(entry["models"]), entry["analysis"]
            in_order = tuple(n for n in self.identities if n in models)
            if name not in types or models != in_order:
                continue
            subjects = self._of(models, entry["images"])
            digest = self._digest(types[name], entry["options"], subjects)
            if key == digest and self.store.get(key):
                stored.setdefault((models, name), []).append(key)
            self.superseded += key != digest
        return stored

    def _of(self, models: Sequence[str], images: int) -> list[Subject]:
        by_name = {s.name: s for s in self.subjects}
        return [by_name[name].limited(images) for name in models]

    def _belongs(self, key: str) -> bool:
        """Whether a stored result of two models is about the results of each that are shown."""
        entry = self.store.entries[key]
        singles = [self.entries.get(((m,), entry["analysis"])) for m in entry["models"]]
        return len(singles) == 1 or all(
            s is None or (s.images, s.options) == (entry["images"], entry["options"])
            for s in singles
        )

    def _resume(self, key: str) -> None:
        entry = self.store.entry(key)
        self.entries[entry.models, entry.analysis] = entry

    def _key(self, analysis: Analysis, subjects: Sequence[Subject]) -> str:
        return self._digest(type(analysis), option_values(analysis), subjects)

    def _digest(
        self, analysis: type[Analysis], options: Mapping[str, Any], subjects: Sequence[Subject]
    ) -> str:
        return key_of(
            models=[
                (s.name, *self._identity(s), str(s.preprocessing), *_recipe_of(s))
                for s in subjects
            ],
            analysis=analysis.name,
            code="".join([plug_in_code(analysis), *self._content(analysis, options)]),
            options=options,
            images=subjects[0].num_images,
            batch_size=(subjects[0].batch_size, subjects[0].output_batch_size),
            precision=self.run.compute.precision,
            study=self.store.header.get("images"),
            training=self.store.header.get("training images"),
            seed=self.run.seed,
        )

    def _content(self, analysis: type[Analysis], options: Mapping[str, Any]) -> list[str]:
        """Digests of what the options name, read once; none of what cannot be read now."""
        key = f"{analysis.name} {options}"
        if key not in self.contents:
            try:
                self.contents[key] = analysis.content(options)
            except InputError:
                self.contents[key] = []
        return self.contents[key]

    def _identity(self, subject: Subject) -> tuple[str, int]:
        """Fingerprint of a model, and which of several models with these weights it is."""
        if subject.name not in self.identities:
            fingerprint = fingerprint_of(subject.model)
            stored = self.store.header.setdefault("outputs", {}).setdefault(fingerprint, [])
            version = version_of(outputs_of(subject, self.run), stored)
            self.identities[subject.name] = fingerprint, version
        return self.identities[subject.name]

    def result(self, *, seconds: float) -> Study:
        """The study as far as it is complete."""
        order = [a.name for a in self.analyses]
        order += [name for name in ANALYSES if name not in order]
        entries = sorted(
            self.entries.values(),
            key=lambda e: (
                order.index(e.analysis),
                len(e.models),
                *map(self._names.index, e.models),
            ),
        )
        weights = {
            s.name: {
                "source": s.spec or FROM_PYTHON,
                "fingerprint": self.identities.get(s.name, ("", 0))[0],
            }
            for s in self.subjects
        }
        self.store.header |= {
            "failures": [vars(f) for f in self.failures],
            "models": list(self._names),
            "keys": [e.key for e in entries],
            "untrained": [s.name for s in self.subjects if not s.trained],
            "weights": weights,
            "notes": {s.name: self._notes(s) for s in self.subjects},
            "revision": revision(),
            "seconds": seconds,
            "effort": self.effort,
            "budget": self.budget,
            "machine": machine(),
            "positions": self.subjects[0].images.positions.tolist(),
            "unreadable": list(self.subjects[0].images.skipped),
        }
        self.store.write()
        header = json.loads(json.dumps(self.store.header))  # as `Study.load` reads it
        return Study(self._names, tuple(entries), tuple(self.failures), header)

    def _notes(self, subject: Subject) -> list[str]:
        """What results of the model do not cover, in sentences."""
        features = [a for a in self.analyses if isinstance(a, FeatureAnalysis)]
        measured = [a for a in features if ((subject.name,), a.name) in self.entries]
        notes = [note for a in measured for note in a.notes(subject.anatomy)]
        return [*subject.anatomy.notes, *notes]

    def _failure(self, model: str, analysis: str, error: Exception) -> Failure:
        """Skipped: an analysis that was not named cannot use the input, of whatever size."""
        memory = isinstance(error.__cause__, torch.OutOfMemoryError)
        skipped = isinstance(error, InputError) and not self.named and not memory
        kind: Kind = "skipped" if skipped else "failed"
        kind = "no time" if isinstance(error, TimeBudgetError) else kind
        return Failure(model, analysis, _reason(error), kind)

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.notify(Stopped(failure))


def _names(subjects: Sequence[Subject]) -> tuple[str, ...]:
    return tuple(s.name for s in subjects)


def _recipe_of(subject: Subject) -> tuple[float, str] | tuple[()]:
    """What curvature takes from the recipe of the training."""
    return (subject.weight_decay, subject.decayed) if subject.weight_decay else ()


def _measured(
    analyses: Sequence[Analysis], subject: Subject, run: Run
) -> Iterator[Sequence[Result]]:
    """The results of each analysis; analyses of feature maps share one pass."""
    features = [a for a in analyses if isinstance(a, FeatureAnalysis)]
    if len(features) < len(analyses) or len(analyses) == 1:
        return iter([analysis.measure(subject, run) for analysis in analyses])
    return iter(observations(subject.anatomy, subject.batches(), features, run=run))


def _reason(error: Exception) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]
    if isinstance(error, TimeBudgetError):
        return f"{text}. {LATE}"
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"
