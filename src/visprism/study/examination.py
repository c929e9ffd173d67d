"""One examination: what a study measures, in which order, and what it keeps."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from visprism.core.errors import InputError, OutputError, shortage
from visprism.core.options import Effort, option_values
from visprism.core.processes import gather
from visprism.core.provenance import machine, revision
from visprism.core.run import Run, TimeBudgetError
from visprism.estimates.text import number_of, some_of
from visprism.kit.analysis import ANALYSES, Analysis, FeatureAnalysis
from visprism.kit.model_on_images import Measured, Subject
from visprism.kit.needs import Needs
from visprism.passes.features import observations
from visprism.report.rows import pairs_of
from visprism.study.events import Finished, Listener, Planned, Started, Stopped, silent
from visprism.study.identity import Identities
from visprism.study.plan import (
    Plan,
    Speed,
    Step,
    duration,
    number_of_images,
    ordered_steps,
    predictions_only,
    reason_to_skip,
)
from visprism.study.record import (
    FROM_PYTHON,
    Entry,
    Failure,
    Header,
    Kind,
    StudyRecord,
    Weights,
)
from visprism.study.speed import speeds_in_turn
from visprism.study.store import Store
from visprism.table.result import Result

_LONGEST = 500  # characters of a reason
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
    refused: dict[str, Failure] = field(default_factory=dict)  # models without an identity
    applicable: dict[str, list[str]] = field(default_factory=dict)  # by analysis: models
    superseded: int = 0  # stored results of these names that another model, or way, gave

    def __post_init__(self) -> None:
        self.identities = Identities(self.run, self.store.header)

    def perform(self) -> None:
        """Plan and measure; what an interruption leaves is complete as far as it goes."""
        for name in ("keys", "models"):  # an interrupted study has no complete list
            self.store.header.pop(name, None)
        for subject in self.subjects:
            try:
                self.identities.add(subject)
            except BaseException as error:  # a model may raise anything
                self._raise_or_go_on(error)
                self.refused[subject.name] = self._failure(subject.name, "", error)
        stored = self._stored()
        steps = self._steps(stored)
        wanted = {a.name: a for step in steps for a in step.analyses}
        for (models, name), keys in stored.items():
            if name in wanted:
                subjects = self._of(models, self._images(wanted[name]))
                if (key := self._key(wanted[name], subjects)) in keys:
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
            fitting = [name for name in self._names if not failures[name]]
            self.applicable[analysis.name] = fitting
            for failure in filter(None, failures.values()):
                self._fail(failure)
            if not fitting:  # of which the cost need not be known
                continue
            number, beyond = number_of_images(analysis, self.subjects, self.effort)
            for name in fitting:
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
        speeds = {subject.name: Speed(0.0) for subject in self.subjects}
        timed = []
        for subject in [] if self.notify is silent else self.subjects:
            try:
                speeds[subject.name] = Speed.of(subject, self.run)
                timed.append(subject)
            except BaseException as error:  # without memory, as measurements will say
                self._raise_or_go_on(error)
        if any(self._missing(step, subject.name) for step in steps for subject in timed):
            try:
                seconds = {name: speed.forward for name, speed in speeds.items()}
                self.store.header["speed"] = speeds_in_turn(timed, seconds, self.run)
            except BaseException as error:
                self._raise_or_go_on(error)
        planned, predicted = [], set()
        for step in steps:
            names = {name for a in step.analyses for name in self.applicable[a.name]}
            missing = {name: self._missing(step, name) for name in self._names if name in names}
            subjects = self._of(missing, step.images)
            seconds = {s.name: speeds[s.name].seconds(missing[s.name], s) for s in subjects}
            for s in subjects:
                if missing[s.name] and all(predictions_only(a, s) for a in missing[s.name]):
                    if (s.name, step.images) in predicted:
                        seconds[s.name] = 0.0
                    predicted.add((s.name, step.images))
            comparing = [
                analysis.comparison_cost(s).seconds(step.images, speeds[s.name].forward)
                for analysis in step.analyses
                for pair in pairs_of(self.applicable[analysis.name])
                if (pair, analysis.name) not in self.entries
                for s in self._of(pair, step.images)
            ]
            stored = frozenset(name for name, analyses in missing.items() if not analyses)
            planned.append(
                replace(step, seconds=seconds, comparing=sum(comparing, 0.0), stored=stored)
            )
        return Plan(tuple(planned), self.effort, self.budget)

    def _missing(self, step: Step, model: str) -> list[Analysis]:
        return [
            a
            for a in step.analyses
            if model in self.applicable[a.name] and ((model,), a.name) not in self.entries
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
        left_out = [f"unreadable images left out ({len(bad)}): {some_of(bad)}"] if bad else []
        notes = dict.fromkeys(note for s in self.subjects for note in s.notes)
        return (*(s.preparation(self.run) for s in self.subjects), *left_out, *notes, *again)

    def _inapplicable(self, analysis: Analysis, subject: Subject) -> Failure | None:
        if subject.name in self.refused:
            return replace(self.refused[subject.name], analysis=analysis.name)
        try:
            if Needs.TWO_MODELS in analysis.needs and len(self.subjects) < 2:
                reason = "it compares models, and the study has one"
            elif analysis.needs & Needs.TRAINED and not subject.trained and not self.named:
                reason = "the model has random weights. Name the analysis to run it anyway."
            else:
                reason = reason_to_skip(analysis, subject, self.run.compute.precision)
        except BaseException as error:
            self._raise_or_go_on(error)
            return self._failure(subject.name, analysis.name, error)
        return Failure(subject.name, analysis.name, reason, "skipped") if reason else None

    # What is measured.

    def _measure(self, step: Step, seconds_after: float) -> None:
        left = step.total + seconds_after
        for subject in self._of(step.seconds, step.images):
            left -= step.seconds[subject.name]
            missing = self._missing(step, subject.name)
            if missing and self._has_time(subject.name, missing, step, left):
                self._measure_one(missing, subject)
            subject.release()
        for analysis in step.analyses:
            self._compare(analysis, step.images)

    def _has_time(
        self, model: str, analyses: Sequence[Analysis], step: Step, seconds_after: float
    ) -> bool:
        """Whether the time limit has room; what begins is announced, the rest is listed."""
        seconds = step.seconds[model]
        names = tuple(a.name for a in analyses)
        if gather(self.run.seconds_left)[0] >= seconds:
            self.notify(Started(model, names, step.images, seconds, seconds_after))
            return True
        reason = (
            f"{number_of(step.images, 'image')} would take about {duration(seconds)}, and less "
            f"is left of the time limit. {LATE}"
        )
        for name in names:
            self._fail(Failure(model, name, reason, "no time"))
        return False

    def _measure_one(self, analyses: Sequence[Analysis], subject: Subject) -> None:
        begin = time.monotonic()
        training = any(Needs.TRAINING_IMAGES in a.needs for a in analyses)
        try:
            run = subject.named(self.run, training=training)
            if len(analyses) > 1:  # of feature maps, which share one pass
                features = [a for a in analyses if isinstance(a, FeatureAnalysis)]
                results = observations(subject.anatomy, subject.batches(), features, run=run)
            else:
                results = [analyses[0].measure(subject, run)]
            for analysis, of_analysis in zip(analyses, results, strict=True):
                self._keep(analysis, (subject,), of_analysis, time.monotonic() - begin)
            return
        except BaseException as error:  # a model may raise anything
            self._raise_or_go_on(error)
            if len(analyses) == 1:
                self._fail(self._failure(subject.name, analyses[0].name, error))
                return
        # The error is gone, and with it the memory of its frames.
        for analysis in analyses:  # one that cannot be measured costs no other
            self._measure_one([analysis], subject)

    def _compare(self, analysis: Analysis, images: int) -> None:
        measured = [n for n in self._names if ((n,), analysis.name) in self.entries]
        for names in pairs_of(measured):
            if (names, analysis.name) in self.entries:
                continue
            pair = self._of(names, images)
            first, second = (
                Measured(s, self.entries[(s.name,), analysis.name].results) for s in pair
            )
            begin = time.monotonic()
            try:
                compared = analysis.compare(first, second, pair[0].named(self.run))
                if compared:
                    self._keep(analysis, pair, compared, time.monotonic() - begin)
            except BaseException as error:
                self._raise_or_go_on(error)
                self._fail(self._failure(" and ".join(names), analysis.name, error))
            pair[0].release()

    def _raise_or_go_on(self, error: BaseException) -> None:
        """Only an interruption, and a file that cannot be written, end a study."""
        if self.on_error == "raise" or isinstance(error, OutputError | KeyboardInterrupt):
            raise error

    # What is kept.

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.subjects)

    def _keep(
        self,
        analysis: Analysis,
        subjects: Sequence[Subject],
        results: Sequence[Result],
        seconds: float,
    ) -> None:
        entry = Entry(
            tuple(s.name for s in subjects),
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
            in_order = tuple(n for n in self.identities.models if n in models)
            if name not in types or models != in_order:
                continue
            subjects = self._of(models, entry["images"])
            digest = self.identities.key(types[name], entry["options"], subjects)
            if key == digest and self.store.get(key):
                stored.setdefault((models, name), []).append(key)
            self.superseded += key != digest
        return stored

    def _of(self, models: Iterable[str], images: int) -> list[Subject]:
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
        return self.identities.key(type(analysis), option_values(analysis), subjects)

    def result(self, *, seconds: float) -> StudyRecord:
        """The study as far as it is complete."""
        order = list(dict.fromkeys([*(a.name for a in self.analyses), *ANALYSES]))

        def place(entry: Entry) -> tuple[int, ...]:
            models = map(self._names.index, entry.models)
            return order.index(entry.analysis), len(entry.models), *models

        entries = sorted(self.entries.values(), key=place)
        weights: dict[str, Weights] = {
            s.name: {
                "source": s.spec or FROM_PYTHON,
                "fingerprint": self.identities.models.get(s.name, ("", 0))[0],
            }
            for s in self.subjects
        }
        found: Header = {
            "failures": [f.stored() for f in self.failures],
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
            "data notes": {s.name: list(s.notes) for s in self.subjects if s.notes},
        }
        self.store.header.update(found)
        self.store.write()
        header = json.loads(json.dumps(self.store.header))  # as `Study.load` reads it
        return StudyRecord(self._names, tuple(entries), tuple(self.failures), header)

    def _notes(self, subject: Subject) -> list[str]:
        """What results of the model do not cover, in sentences."""
        features = [a for a in self.analyses if isinstance(a, FeatureAnalysis)]
        measured = [a for a in features if ((subject.name,), a.name) in self.entries]
        notes = [note for a in measured for note in a.notes(subject.anatomy)]
        return [*subject.anatomy.notes, *notes]

    def _failure(self, model: str, analysis: str, error: BaseException) -> Failure:
        """Skipped: an analysis that was not named cannot use the input, of whatever size."""
        memory = isinstance(error.__cause__, torch.OutOfMemoryError)
        skipped = isinstance(error, InputError) and not self.named and not memory
        kind: Kind = "skipped" if skipped else "failed"
        text = (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]
        if isinstance(error, TimeBudgetError):
            kind, text = "no time", f"{text}. {LATE}"
        elif sentence := shortage(error):
            text = sentence
        elif not isinstance(error, InputError):
            text = f"{type(error).__name__}: {text}"
        return Failure(model, analysis, text, kind)

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.notify(Stopped(failure))
