"""One examination: what a study measures, in which order, and what it keeps."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from visprism.analyses.base import Analysis, FeatureAnalysis, Needs
from visprism.analyses.subject import Measured, Subject
from visprism.core.errors import InputError, OutputError
from visprism.core.inference import Inference
from visprism.core.machine import machine
from visprism.core.options import option_values, parsed_options
from visprism.core.processes import gather
from visprism.core.revision import revision
from visprism.core.run import Run, TimeBudgetError
from visprism.passes.features import observations
from visprism.study.events import Finished, Listener, Planned, Started, Stopped
from visprism.study.fingerprints import fingerprint_of, outputs_of, plug_in_code, version_of
from visprism.study.pace import Pace
from visprism.study.plan import Plan, Step, minutes_with_room, plan_of, step_of
from visprism.study.store import Store, key_of
from visprism.study.study import FROM_PYTHON, Entry, Failure, Kind, Study
from visprism.study.table import pairs_of
from visprism.study.workload import Workload
from visprism.table.result import Result

_UNTRAINED = "the model has random weights. Name the analysis to run it all the same."


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
    budget: float | None = None  # seconds
    spent: float = 0.0  # seconds of the budget that are not for measurements
    entries: list[Entry] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    identities: dict[str, tuple[str, int]] = field(default_factory=dict)  # by name of the model

    def perform(self) -> None:
        """Plan and measure; what an interruption leaves is complete as far as it goes."""
        self.store.header.pop("keys", None)  # an interrupted study has no complete list
        workload = self._workload()
        self._decide_inference(workload)
        remaining = [a for a in self.analyses if workload.applicable[a.name]]
        plan = self._planned(workload, remaining, self._left)
        self.spent = 0.0 if self.budget is None else self.budget - (self._left or 0.0)
        plan = replace(plan, budget=self.budget, spent=self.spent)
        self.notify(Planned(plan, tuple(s.preparation() for s in self.subjects)))
        pace = Pace(plan.seconds)
        # The cheapest first: what takes longer than expected then costs no other analysis.
        while remaining:
            workload = replace(workload, pace=pace.factor)
            plan = self._planned(workload, remaining, self._left)
            if not plan.steps:
                self._skip(plan, workload)
                return
            step = min(plan.steps, key=lambda s: s.total)
            self._decide(step)
            self._measure(step, workload, pace, plan.seconds - step.total)
            remaining = [a for a in remaining if a.name not in step.names]

    @property
    def _left(self) -> float | None:
        """Seconds of the budget that are left; None without one."""
        return None if self.budget is None else max(self.run.seconds_left, 0.0)

    def _skip(self, plan: Plan, workload: Workload) -> None:
        """Report analyses without room, and the budget of a study that has room for them."""
        analyses = [a for a in self.analyses if workload.applicable[a.name]]
        minutes = minutes_with_room(workload, analyses, self.budget or 0.0, self.spent)
        for name, shortage in plan.too_slow.items():
            reason = str(shortage)
            if name in minutes:
                reason += f" A budget of {minutes[name]} min would be enough."
            for model in sorted(workload.applicable[name]):
                self._fail(Failure(model, name, reason, "no time"))

    def result(self, *, seconds: float) -> Study:
        """The study as far as it is complete."""
        order = {a.name: i for i, a in enumerate(self.analyses)}
        entries = sorted(self.entries, key=lambda e: order.get(e.analysis, -1))
        self.store.header["failures"] = [vars(f) for f in self.failures]
        self.store.header["models"] = [s.name for s in self.subjects]
        self.store.header["keys"] = [e.key for e in entries]
        self.store.header["untrained"] = [s.name for s in self.subjects if not s.trained]
        self.store.header["weights"] = self._weights()
        self.store.header["revision"] = revision()
        self.store.header["seconds"] = seconds
        self.store.header["budget"] = self.budget
        self.store.header["machine"] = machine()
        self.store.header["positions"] = self.subjects[0].images.positions.tolist()
        self.store.write()
        header = json.loads(json.dumps(self.store.header))  # as `Study.load` reads it
        return Study(
            tuple(s.name for s in self.subjects), tuple(entries), tuple(self.failures), header
        )

    def _weights(self) -> dict[str, dict[str, str]]:
        """Where the weights of each model come from, and the fingerprint of the model."""
        return {
            subject.name: {
                "source": subject.spec or FROM_PYTHON,
                "fingerprint": self.identities.get(subject.name, ("", 0))[0],
            }
            for subject in self.subjects
        }

    def _workload(self) -> Workload:
        applicable: dict[str, frozenset[str]] = {}
        for analysis in self.analyses:
            names = set()
            for subject in self.subjects:
                reason = self._inapplicable(analysis, subject)
                if reason is None:
                    names.add(subject.name)
                else:
                    self._fail(Failure(subject.name, analysis.name, reason, "skipped"))
            applicable[analysis.name] = frozenset(names)
        return Workload.timed(self.subjects, self.analyses, applicable, self.run)

    def _inapplicable(self, analysis: Analysis, subject: Subject) -> str | None:
        if Needs.TWO_MODELS in analysis.needs and len(self.subjects) < 2:
            return "it compares models, and the study has one"
        if Needs.TARGETS in analysis.needs and not subject.trained and not self.named:
            return _UNTRAINED
        cost = analysis.cost(subject)
        if (cost.gradients or cost.products) and self.run.compute.precision != "fp32":
            return (
                "precision must be 'fp32' for derivatives of the loss, got "
                f"{self.run.compute.precision!r}"
            )
        return analysis.inapplicable(subject)

    def _planned(
        self, workload: Workload, remaining: Sequence[Analysis], budget: float | None
    ) -> Plan:
        """A plan in which what was decided before, also by an earlier run, stays decided."""
        plan = gather(plan_of(workload, remaining, budget))[0]
        return replace(plan, steps=tuple(self._as_decided(s, workload) for s in plan.steps))

    def _as_decided(self, step: Step, workload: Workload) -> Step:
        """The step as it was decided for the analyses of it that were asked for before."""
        stored = self.store.header.get("decisions", {})
        decided = {
            a.name: stored[a.name]
            for a in step.analyses
            if a.name in stored and stored[a.name]["request"] == self._request(a)
        }
        if not decided:
            return step
        analyses = tuple(
            replace(a, **parsed_options(a, decided[a.name]["options"]))  # pyrefly: ignore
            if a.name in decided
            else a
            for a in step.analyses
        )
        # Analyses that share a pass share its images: a new one is given those of the others.
        images = min(decision["images"] for decision in decided.values())
        return step_of(analyses, workload, images)

    def _decide_inference(self, workload: Workload) -> None:
        """Keep how outputs are computed, so that a resumed study computes them the same way."""
        decisions = self.store.header.setdefault("inference", {})
        for subject in workload.subjects_of(
            [a for a in self.analyses if Needs.OUTPUTS in a.needs]
        ):
            compute = self.run.compute
            key = key_of(
                model=self._identity(subject),
                preprocessing=str(subject.preprocessing),
                batch_size=subject.output_batch_size,
                device=compute.torch_device.type,
                precision=compute.precision,
            )
            stored = gather(decisions.get(key))[0]
            if stored is not None:
                subject.passes.settings = Inference.from_json(stored)
            decisions[key] = subject.passes.select(subject, self.run).to_json()
            subject.release()
        self.store.write()

    def _decide(self, step: Step) -> None:
        """Keep how an analysis runs, so that a resumed study runs it in the same way."""
        decisions = self.store.header.setdefault("decisions", {})
        for analysis in step.analyses:
            decisions[analysis.name] = {
                "request": self._request(analysis),
                "images": step.images,
                "options": option_values(analysis),
            }
        self.store.write()

    def _request(self, analysis: Analysis) -> dict[str, Any]:
        """What the user asked for: a decision holds only for the same request."""
        given = next(a for a in self.analyses if a.name == analysis.name)
        return {"options": option_values(given), "budget": self.budget}

    def _measure(
        self, step: Step, workload: Workload, pace: Pace, seconds_after: float
    ) -> None:
        waiting = dict(step.seconds)  # models of this step that are not measured yet
        for subject in workload.subjects_of(step.analyses):
            seconds = waiting.pop(subject.name)
            limited = subject.limited(step.images)
            wanted = [a for a in step.analyses if subject.name in workload.applicable[a.name]]
            missing = [a for a in wanted if not self._resume(a, limited)]
            if missing:
                names = tuple(a.name for a in missing)
                left = sum(waiting.values(), start=step.comparing + seconds_after)
                self.notify(Started(subject.name, names, step.images, seconds, left))
                with pace.measuring(seconds / workload.pace):
                    self._measure_one(missing, limited)
            subject.release()
        self._compare(step, workload, pace, seconds_after)

    def _measure_one(self, analyses: Sequence[Analysis], subject: Subject) -> None:
        begin = time.monotonic()
        training = any(Needs.TRAINING_IMAGES in a.needs for a in analyses)
        run = subject.named(self.run, training=training)
        try:
            results = _measured(analyses, subject, run)
            for analysis, analysis_results in zip(analyses, results, strict=True):
                self._keep(
                    analysis, (subject,), tuple(analysis_results), time.monotonic() - begin
                )
        except InputError as error:
            if self.on_error == "raise":
                raise
            if len(analyses) == 1:
                self._fail(self._failure(subject.name, analyses[0].name, error))
                return
            for analysis in analyses:  # one that cannot be measured does not cost the others
                self._measure_one([analysis], subject)
        except Exception as error:  # a model may raise anything
            if self.on_error == "raise" or isinstance(error, OutputError):
                raise
            for analysis in analyses:
                self._fail(self._failure(subject.name, analysis.name, error))

    def _compare(
        self, step: Step, workload: Workload, pace: Pace, seconds_after: float
    ) -> None:
        """What the analyses of a step find about two models together."""
        waiting = step.comparing
        for analysis in step.analyses:
            measured = {
                e.models[0]: e.results
                for e in self.entries
                if e.analysis == analysis.name and len(e.models) == 1
            }
            with_results = [s for s in self.subjects if s.name in measured]
            for first, second in pairs_of(with_results):
                pair = tuple(s.limited(step.images) for s in (first, second))
                seconds = workload.comparison(analysis, pair)
                waiting -= seconds
                if self._resume(analysis, *pair):
                    continue
                names = f"{first.name} and {second.name}"
                if seconds:
                    left = waiting + seconds_after
                    self.notify(Started(names, (analysis.name,), step.images, seconds, left))
                begin = time.monotonic()
                run = pair[0].named(self.run)
                one, other = (Measured(s, measured[s.name]) for s in pair)
                try:
                    with pace.measuring(seconds / workload.pace):
                        compared = tuple(analysis.compare(one, other, run))
                except Exception as error:
                    if self.on_error == "raise" or isinstance(error, OutputError):
                        raise
                    self._fail(self._failure(names, analysis.name, error))
                else:
                    if compared:
                        self._keep(analysis, pair, compared, time.monotonic() - begin)
                finally:
                    for subject in pair:
                        subject.release()

    def _keep(
        self,
        analysis: Analysis,
        subjects: Sequence[Subject],
        results: tuple[Result, ...],
        seconds: float,
    ) -> None:
        names = tuple(s.name for s in subjects)
        entry = Entry(
            names,
            analysis.name,
            results,
            option_values(analysis),
            subjects[0].num_images,
            seconds,
            key=self._key(analysis, subjects),
        )
        description = {
            "model": "-and-".join(names),
            "models": list(names),
            "analysis": analysis.name,
            "options": entry.options,
            "images": entry.images,
            "seconds": seconds,
        }
        self.store.put(entry.key, results, **description)
        self.entries.append(entry)
        self.notify(Finished(entry, resumed=False))

    def _resume(self, analysis: Analysis, *subjects: Subject) -> bool:
        """Whether the results exist already; then they become an entry."""
        key = self._key(analysis, subjects)
        results = self.store.get(key)
        if not results:
            return False
        seconds = self.store.entries[key]["seconds"]
        names = tuple(s.name for s in subjects)
        options = option_values(analysis)
        images = subjects[0].num_images
        entry = Entry(names, analysis.name, results, options, images, seconds, key)
        self.entries.append(entry)
        self.notify(Finished(entry, resumed=True))
        return True

    def _key(self, analysis: Analysis, subjects: Sequence[Subject]) -> str:
        return key_of(
            models=[(s.name, *self._identity(s), str(s.preprocessing)) for s in subjects],
            analysis=analysis.name,
            code=plug_in_code(analysis),
            options=option_values(analysis),
            images=subjects[0].num_images,
            batch_size=(subjects[0].batch_size, subjects[0].output_batch_size),
            precision=self.run.compute.precision,
            study=self.store.header.get("images"),
            training=self.store.header.get("training images"),
            seed=self.run.seed,
        )

    def _identity(self, subject: Subject) -> tuple[str, int]:
        """Fingerprint of a model, and which of several models with these weights it is."""
        if subject.name not in self.identities:
            fingerprint = fingerprint_of(subject.model)
            stored = self.store.header.setdefault("outputs", {}).setdefault(fingerprint, [])
            version = version_of(outputs_of(subject, self.run), stored)
            self.identities[subject.name] = fingerprint, version
        return self.identities[subject.name]

    def _failure(self, model: str, analysis: str, error: Exception) -> Failure:
        """Skipped: an analysis that nobody named cannot use the input."""
        skipped = isinstance(error, InputError) and not self.named
        kind: Kind = "skipped" if skipped else "failed"
        kind = "no time" if isinstance(error, TimeBudgetError) else kind
        return Failure(model, analysis, _reason(error), kind)

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.notify(Stopped(failure))


def _measured(
    analyses: Sequence[Analysis], subject: Subject, run: Run
) -> Iterator[Sequence[Result]]:
    """The results of each analysis; those of feature maps share one pass."""
    features = [a for a in analyses if isinstance(a, FeatureAnalysis)]
    if len(features) < len(analyses) or len(analyses) == 1:
        return iter([analysis.measure(subject, run) for analysis in analyses])
    return iter(observations(subject.anatomy, subject.batches(), features, run=run))


def _reason(error: Exception) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, TimeBudgetError):
        return f"{text}. A larger budget completes it, and resumes a study with a folder."
    is_expected = isinstance(error, InputError)
    return text if is_expected else f"{type(error).__name__}: {text}"
