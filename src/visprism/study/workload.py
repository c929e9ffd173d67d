"""The work of a study: models, the analyses that apply to each, and how fast the models are."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import torch

from visprism.analyses.base import Analysis, Timing
from visprism.analyses.subject import Subject
from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.run import Run
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Products
from visprism.passes.batches import on_device
from visprism.study.table import pairs_of

_TIMED, _REPEATS = 32, 3  # images of a timed pass, and how often it is repeated
_MINI_BATCH, _FEWEST_TIMED = 16, 4  # images of timed derivatives
_PASS_SECONDS = 0.3  # of a timed pass, by which the number of its images is chosen
_LOSS_SECONDS = 0.05  # of a forward pass, by which that of timed derivatives is chosen
_PATIENCE = 1.0  # seconds; a call that takes longer is not timed again
_COLD = 20.0  # times the call before it: most of such a first call is imports of torch


def timing_of(subject: Subject, run: Run, *, of_loss: bool = False) -> Timing:
    """Seconds per image of a forward pass and of loading; the same in every process.

    With `of_loss`, also of evaluations and derivatives of the loss. A model whose loss cannot
    be differentiated twice has no times of these; its analyses report why.

    Cost: four forward passes of 4 to 32 images, fewer of slow models, and of the loss two
    evaluations, gradients and Hessian-vector products of 4 to 16 images.
    """
    fewest = subject.limited(min(_FEWEST_TIMED, subject.num_images))
    first = _pass_timing(fewest, run, repeats=1)
    fitting = int(_PASS_SECONDS / max(first.forward, 1e-9))
    timing = first
    if fitting > _FEWEST_TIMED:
        few = subject.limited(min(_TIMED, fitting, subject.num_images))
        timing = _pass_timing(few, run, repeats=_REPEATS)
    if not of_loss:
        return timing
    images, *seconds = _loss_seconds(subject, run, timing.forward)
    shared = [max(gather(value)) / images for value in seconds]
    if not all(isfinite(value) for value in shared):
        return timing
    evaluation, gradient, product = shared
    return replace(timing, evaluation=evaluation, gradient=gradient, product=product)


def _pass_timing(few: Subject, run: Run, *, repeats: int) -> Timing:
    """Seconds per image of the fastest of several passes, and of loading."""
    begin = time.perf_counter()
    batches = [b[0] if isinstance(b, tuple | list) else b for b in few.batches()]
    load = time.perf_counter() - begin
    passes = []
    with torch.no_grad(), run.compute.borrow(few.model), run.compute.autocast():
        for _ in range(repeats):
            begin = time.perf_counter()
            for images in batches:
                forward(few.model, on_device(images, run.compute))
            passes.append(time.perf_counter() - begin)
    # The fastest: the first pass is slow, and other programs slow down any of them.
    return Timing(max(gather(min(passes))) / few.num_images, max(gather(load)) / few.num_images)


def _loss_seconds(
    subject: Subject, run: Run, forward_seconds: float
) -> tuple[int, float, float, float]:
    """Number of images; seconds of an evaluation, a gradient, a Hessian-vector product."""
    fitting = max(_FEWEST_TIMED, int(_LOSS_SECONDS / max(forward_seconds, 1e-9)))
    number = min(_MINI_BATCH, fitting, subject.num_images)
    try:
        objective = Objective(
            subject.model,
            list(subject.limited(number).training_batches(number)),
            run=replace(run, progress=None),
            shared=False,
        )
        theta, products = objective.theta, Products(objective)
        vectors = torch.ones_like(theta)[None, None]
        calls: tuple[Callable[[], object], ...] = (
            lambda: objective.value(theta),
            lambda: objective.gradient(theta),
            lambda: products(vectors),
        )
        seconds = [number * forward_seconds]
        for call in calls:
            seconds.append(_call_seconds(call, seconds[-1]))
        _, evaluation, gradient, product = seconds
        return number, evaluation, gradient, product
    except (InputError, RuntimeError, ValueError):
        return number, inf, inf, inf


def _call_seconds(call: Callable[[], object], cheaper: float) -> float:
    """Seconds of the second of two calls, since the first also builds graphs and caches.

    A call that took a second is not repeated: its seconds are an upper bound. It is repeated
    where it took 20 times as long as the `cheaper` call before it: the first derivatives of a
    process import parts of torch.
    """
    begin = time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    if _PATIENCE < seconds < _COLD * cheaper:
        return seconds
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@dataclass(frozen=True)
class Workload:
    """The models of a study, which analyses apply to each, and how fast the models are."""

    subjects: Sequence[Subject]
    applicable: Mapping[str, frozenset[str]]  # analysis -> names of models
    timings: Mapping[str, Timing]  # by model
    pace: float = 1.0  # by which expected seconds are multiplied

    @classmethod
    def timed(
        cls,
        subjects: Sequence[Subject],
        analyses: Iterable[Analysis],
        applicable: Mapping[str, frozenset[str]],
        run: Run,
    ) -> "Workload":
        """Time the models, and their losses where an analysis computes these."""
        analyses = tuple(analyses)
        timings = {}
        for subject in subjects:
            costs = [a.cost(subject) for a in analyses if subject.name in applicable[a.name]]
            of_loss = any(cost.of_loss for cost in costs)
            timings[subject.name] = timing_of(subject, run, of_loss=of_loss)
            subject.release()
        return cls(subjects, applicable, timings)

    def subjects_of(self, group: Sequence[Analysis]) -> list[Subject]:
        """The models that at least one of these analyses applies to."""
        names = frozenset[str]().union(*(self.applicable[a.name] for a in group))
        return [s for s in self.subjects if s.name in names]

    def most(self, group: Sequence[Analysis]) -> int:
        """The largest number of images that these analyses may measure on all models."""
        limits = [a.max_images for a in group if a.max_images is not None]
        return min([*(s.num_images for s in self.subjects), *limits])

    def seconds(self, group: Sequence[Analysis], images: int) -> dict[str, float]:
        """Expected seconds by model; analyses of a group share one pass."""
        return {s.name: self._seconds(group, s, images) for s in self.subjects_of(group)}

    def comparing(self, group: Sequence[Analysis], images: int) -> float:
        """Expected seconds of all comparisons of two models by these analyses."""
        seconds = [
            self.comparison(analysis, [s.limited(images) for s in pair])
            for analysis in group
            for pair in pairs_of(self.subjects_of([analysis]))
        ]
        return sum(seconds, start=0.0)

    def comparison(self, analysis: Analysis, pair: Iterable[Subject]) -> float:
        """Expected seconds of a comparison of two models."""
        seconds = [
            analysis.comparison_cost(s).seconds(s.num_images, self.timings[s.name])
            for s in pair
        ]
        return self.pace * sum(seconds)

    def _seconds(self, group: Sequence[Analysis], subject: Subject, images: int) -> float:
        timing = self.timings[subject.name]
        costs = [
            a.cost(subject.limited(images))
            for a in group
            if subject.name in self.applicable[a.name]
        ]
        shared = 1.0 if len(costs) > 1 else 0.0
        # What analyses of one pass cost beyond it, and the pass once.
        extra = [replace(c, per_image=c.per_image - shared) for c in costs]
        seconds = sum(c.seconds(images, replace(timing, load=0.0)) for c in extra)
        load = timing.load if any(c.reads_images for c in costs) else 0.0
        return self.pace * (seconds + images * (shared * timing.forward + load))
