"""Plans: which analyses run, on how many images, and how long that is expected to take.

All models of a study are measured on the same number of images by each analysis; the slowest
model decides what a time budget allows.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isfinite

import torch

from visprism.analyses.base import Analysis, FeatureAnalysis, Timing
from visprism.analyses.subject import Subject
from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.run import Run
from visprism.measure.batches import on_device
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Products

_COMFORTABLE = 128  # images: an analysis is made coarser before it is given fewer
_RESERVE = 0.8  # part of a budget that is planned; estimates err
_TIMED, _REPEATS = 32, 3  # images of a timed pass, and how often it is repeated
_MINI_BATCH, _FEWEST_TIMED = 16, 4  # images of timed derivatives
_LOSS_SECONDS = 0.05  # of a forward pass, by which the number of these images is chosen


@dataclass(frozen=True)
class Step:
    """One entry of a plan: analyses that run together, on so many images."""

    label: str
    analyses: tuple[Analysis, ...]  # one, or all that share the pass over feature maps
    images: int
    seconds: Mapping[str, float]  # expected, by model

    @property
    def names(self) -> frozenset[str]:
        """Names of the analyses."""
        return frozenset(a.name for a in self.analyses)

    @property
    def total(self) -> float:
        """Expected seconds of all models."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Plan:
    """The steps of a study in order."""

    steps: tuple[Step, ...] = ()
    too_slow: Mapping[str, str] = field(default_factory=dict)  # analysis -> reason
    budget: float | None = None  # seconds

    @property
    def seconds(self) -> float:
        """Expected seconds of all steps."""
        return sum(step.total for step in self.steps)

    def lines(self) -> list[str]:
        """The plan as text, a line per step."""
        width = max((len(step.label) for step in self.steps), default=0)
        rows = [
            f"{step.label:<{width}}  {step.images:>6} images  "
            + "  ".join(f"{name}: {s:.1f} s" for name, s in step.seconds.items())
            for step in self.steps
        ]
        limit = "" if self.budget is None else f" of {self.budget:.0f} s"
        return [*rows, f"{'total':<{width}}  expected {self.seconds:.0f} s{limit}"]


def timing_of(subject: Subject, run: Run, *, of_loss: bool = False) -> Timing:
    """Seconds per image of a forward pass and of loading; the same in every process.

    With `of_loss`, also of evaluations and derivatives of the loss. A model whose loss cannot
    be differentiated twice has no times of these; its analyses report why.

    Cost: three forward passes of at most 32 images, and of the loss two evaluations, gradients
    and Hessian-vector products of at most 16 images.
    """
    few = subject.limited(min(_TIMED, subject.num_images))
    begin = time.perf_counter()
    batches = [b[0] if isinstance(b, tuple | list) else b for b in few.batches()]
    load = time.perf_counter() - begin
    passes = []
    with torch.no_grad(), run.compute.borrow(subject.model), run.compute.autocast():
        for _ in range(_REPEATS):
            begin = time.perf_counter()
            for images in batches:
                forward(subject.model, on_device(images, run.compute))
            passes.append(time.perf_counter() - begin)
    number = few.num_images
    # The fastest: the first pass is slow, and other programs slow down any of them.
    timing = Timing(max(gather(min(passes))) / number, max(gather(load)) / number)
    if not of_loss:
        return timing
    images, *seconds = _loss_seconds(subject, run, timing.forward)
    shared = [max(gather(value)) / images for value in seconds]
    if not all(isfinite(value) for value in shared):
        return timing
    evaluation, gradient, product = shared
    return replace(timing, evaluation=evaluation, gradient=gradient, product=product)


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
        evaluation, gradient, product = map(_second_call, calls)
        return number, evaluation, gradient, product
    except (InputError, RuntimeError, ValueError):
        return number, inf, inf, inf


def _second_call(call: Callable[[], object]) -> float:
    """Seconds of the second of two calls; the first also builds graphs and caches."""
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@dataclass(frozen=True)
class Workload:
    """The models of a study, which analyses apply to each, and how fast the models are."""

    subjects: Sequence[Subject]
    applicable: Mapping[str, frozenset[str]]  # analysis -> names of models
    timings: Mapping[str, Timing]  # by model

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
        return seconds + images * (shared * timing.forward + timing.load)


def plan_of(workload: Workload, analyses: Iterable[Analysis], budget: float | None) -> Plan:
    """The steps for these models within a budget in seconds; None for no limit.

    An analysis that runs in full takes what it needs; the rest of the budget is divided among
    the others by their shares. What one does not need goes to the others.
    """
    groups = [g for g in _groups(analyses) if workload.subjects_of(g)]
    if budget is None:
        return Plan(tuple(_full(g, workload) for g in groups))
    steps: dict[str, Step] = {}
    too_slow: dict[str, str] = {}
    left = _RESERVE * budget
    for group in (g for g in groups if not _share(g)):
        step = _fitted(group, workload, max(left, 0.0)) or _full(group, workload)
        steps[group[0].name] = step
        left -= step.total
    # The cheapest analyses first: what they leave of their share goes to the others.
    waiting = [g for g in groups if _share(g)]
    waiting.sort(key=lambda g: _full(g, workload).total / _share(g))
    while waiting:
        group = waiting.pop(0)
        part = _share(group) / (_share(group) + sum(map(_share, waiting)))
        allowance = max(left, 0.0) * part
        step = _fitted(group, workload, allowance)
        if step is None:
            too_slow[group[0].name] = _too_slow(group[0], workload, allowance, part, budget)
        else:
            steps[group[0].name] = step
            left -= step.total
    ordered = tuple(steps[g[0].name] for g in groups if g[0].name in steps)
    return Plan(ordered, too_slow, budget)


def _groups(analyses: Iterable[Analysis]) -> list[tuple[Analysis, ...]]:
    analyses = list(analyses)
    features = tuple(a for a in analyses if isinstance(a, FeatureAnalysis))
    others: list[tuple[Analysis, ...]] = [
        (a,) for a in analyses if not isinstance(a, FeatureAnalysis)
    ]
    return [features, *others] if features else others


def _share(group: Sequence[Analysis]) -> float:
    return sum(a.share for a in group)


def _step(group: tuple[Analysis, ...], workload: Workload, images: int) -> Step:
    label = ", ".join(a.name for a in group)
    return Step(label, group, images, workload.seconds(group, images))


def _full(group: tuple[Analysis, ...], workload: Workload) -> Step:
    return _step(group, workload, workload.most(group))


def _fitted(group: tuple[Analysis, ...], workload: Workload, allowance: float) -> Step | None:
    """The finest variant that fits into `allowance` seconds; None if none does."""
    most = workload.most(group)
    images = _affordable(group, workload, allowance)
    while images < min(_COMFORTABLE, most) and len(group) == 1:
        cheaper = group[0].coarser()
        if cheaper is None:
            break
        group = (cheaper,)
        images = _affordable(group, workload, allowance)
    if images < min(max(a.min_images for a in group), most):
        return None
    return _step(group, workload, images)


def _affordable(group: Sequence[Analysis], workload: Workload, allowance: float) -> int:
    """The largest number of images that all models together can measure in `allowance`."""
    low, high = 0, workload.most(group)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(workload.seconds(group, middle).values()) <= allowance
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _too_slow(
    analysis: Analysis, workload: Workload, allowance: float, part: float, budget: float
) -> str:
    """Why an analysis has no room in a budget, and which budget would have room for it."""
    while (cheaper := analysis.coarser()) is not None:
        analysis = cheaper
    fewest = min(analysis.min_images, workload.most([analysis]))
    need = sum(workload.seconds([analysis], fewest).values())
    minutes = (budget + (need - allowance) / part / _RESERVE) / 60
    return (
        f"{fewest} images would take about {_duration(need)}, and {_duration(allowance)} of "
        f"the time budget are left for it. A budget of {ceil(minutes)} min would be enough."
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.0f} s"
