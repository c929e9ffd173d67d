"""Plans: which analyses run, on how many images and in which order.

All of it follows from what is declared and counted, never from what is timed: two runs of one
command measure the same. Seconds are estimates, to show and to keep a time limit.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch
from torch import nn

from visprism.anatomy.blocks.anatomy import costs
from visprism.anatomy.trace.forward import forward
from visprism.core.options import EFFORTS, Effort
from visprism.core.processes import gather
from visprism.core.run import Run
from visprism.kit.analysis import Analysis, FeatureAnalysis
from visprism.kit.model_on_images import Subject, inputs_of
from visprism.kit.needs import WORK, Cost, Needs
from visprism.passes.batches import on_device

_ONE_PASS = 2.0  # at most, with what is computed of the pass
_SHARED = 4.0  # passes of one image that all analyses of feature maps cost together
_TIMED = 4  # images of the timed pass
_REPEATS = 3  # passes, of which the fastest counts
_NO_DERIVATIVES = {torch.bfloat16, torch.float16, torch.complex64, torch.complex128}
_LONG, _HOUR = 10.0, 3600.0  # seconds; longer times have no fraction, or are in minutes


@dataclass(frozen=True)
class Step:
    """Analyses that run together, on so many images."""

    label: str
    analyses: tuple[Analysis, ...]  # one, or all that share the pass over feature maps
    images: int
    seconds: Mapping[str, float] = field(default_factory=dict)  # expected, by model
    comparing: float = 0.0  # seconds that comparisons of the models are expected to take
    stored: frozenset[str] = frozenset()  # models of which everything is stored

    @property
    def total(self) -> float:
        """Expected seconds of all models and of their comparisons."""
        return sum(self.seconds.values(), start=self.comparing)

    def line(self) -> str:
        """Images, and seconds of each model."""
        parts = [
            f"{name}: {'stored, 0 s' if name in self.stored else f'{seconds:.1f} s'}"
            for name, seconds in self.seconds.items()
        ]
        if self.comparing:
            parts.append(f"comparisons: {self.comparing:.1f} s")
        return f"{self.images:>6} image{'s' if self.images != 1 else ' '}  {'  '.join(parts)}"


@dataclass(frozen=True)
class Plan:
    """The steps of a study in order."""

    steps: tuple[Step, ...] = ()
    effort: Effort = "quick"
    budget: float | None = None  # seconds

    @property
    def seconds(self) -> float:
        """Expected seconds of all steps."""
        return sum((step.total for step in self.steps), start=0.0)

    def total(self) -> str:
        """The plan in one line."""
        limit = "" if self.budget is None else f"; the time limit is {duration(self.budget)}"
        number = sum(len(step.analyses) for step in self.steps)
        analyses = "1 analysis" if number == 1 else f"{number} analyses"
        return f"{analyses}, about {duration(self.seconds)} at {self.effort} effort{limit}"

    def lines(self) -> list[str]:
        """The plan as text, a line per step."""
        width = max((len(step.label) for step in self.steps), default=0)
        return [*(f"{step.label:<{width}}  {step.line()}" for step in self.steps), self.total()]


def duration(seconds: float) -> str:
    """Seconds, or minutes for an hour or more."""
    digits = 0 if seconds >= _LONG else 1
    return f"{seconds:.{digits}f} s" if seconds < _HOUR else f"{seconds / 60:.0f} min"


def images_paid_for(analysis: Analysis, subjects: Iterable[Subject], effort: Effort) -> float:
    """How many images the arithmetic of an effort pays for, of the costliest of the models."""
    work, numbers = WORK[effort] * analysis.images.work, [inf]
    for subject in subjects:
        macs = float(costs(subject.anatomy).macs.sum())
        per_image, fixed = analysis.cost(subject).macs(macs)
        if isinstance(analysis, FeatureAnalysis):  # whichever of them share the pass
            per_image = _SHARED * macs
        if per_image:
            numbers.append(max(work - fixed, 0.0) / per_image)
    return min(numbers)


def one_pass(analysis: Analysis, subject: Subject) -> bool:
    """Whether an analysis costs one forward pass, and declares no limit at full effort."""
    cost = analysis.cost(subject)
    single = cost.passes <= _ONE_PASS and not cost.seconds_per_image
    return single and analysis.images.full is None


def predictions_only(analysis: Analysis, subject: Subject) -> bool:
    """Whether an analysis costs the predictions of the images, which are computed once."""
    return Needs.OUTPUTS in analysis.needs and analysis.cost(subject) == Cost(per_image=1)


def number_of_images(
    analysis: Analysis, subjects: Sequence[Subject], effort: Effort
) -> tuple[int, str]:
    """How many images an analysis measures of each model, and why it is left out, if it is."""
    sizes = analysis.images
    declared = getattr(sizes, effort)
    most = min([s.num_images for s in subjects] + ([] if declared is None else [declared]))
    if all(s.images.limit is not None and one_pass(analysis, s) for s in subjects):
        return min(s.num_images for s in subjects), ""
    fewest = min(sizes.fewest, most)
    paid = images_paid_for(analysis, subjects, effort)
    if paid >= fewest:
        return int(min(paid, most)), ""
    enough = next(e for e in EFFORTS if images_paid_for(analysis, subjects, e) >= fewest)
    reason = (
        f"{fewest} images, the fewest, take {fewest / max(paid, 1e-3):.2g} times the "
        f"arithmetic of {effort} effort. Effort {enough} measures it, and so does naming it."
    )
    return fewest, reason


def reason_to_skip(analysis: Analysis, subject: Subject, precision: str) -> str | None:
    """Why an analysis cannot measure a model; None if it can."""
    cost = analysis.cost(subject)
    if cost.gradients or cost.products:
        if precision != "fp32":
            return f"precision must be 'fp32' for derivatives of the loss, got {precision!r}"
        kinds = {p.dtype for p in subject.model.parameters() if p.dtype in _NO_DERIVATIVES}
        if kinds:
            return (
                "parameters must be float32 for derivatives of the loss, got "
                f"{str(kinds.pop()).removeprefix('torch.')}. model.float() converts half "
                "precision"
            )
    return analysis.inapplicable(subject)


def ordered_steps(
    analyses: Iterable[Analysis], images: Mapping[str, int], subjects: Sequence[Subject]
) -> list[Step]:
    """Steps by rank, then by the arithmetic; analyses of feature maps share one pass."""
    groups: dict[tuple, list[Analysis]] = {}
    for analysis in analyses:
        shared = isinstance(analysis, FeatureAnalysis)
        key = (shared, images[analysis.name], "" if shared else analysis.name)
        groups.setdefault(key, []).append(analysis)

    def place(step: Step) -> tuple[int, float]:
        macs = (sum(a.cost(s).macs(1.0)) for a in step.analyses for s in subjects)
        return min(a.rank for a in step.analyses), step.images * sum(macs)

    steps = [
        Step(", ".join(a.name for a in group), tuple(group), number)
        for (_, number, _), group in groups.items()
    ]
    return sorted(steps, key=place)


def _fastest(model: nn.Module, batches: list[Any], device: torch.device) -> float:
    """Seconds of the fastest of 3 passes over batches: other work can only slow them."""

    def seconds() -> float:
        begin = time.perf_counter()
        for images in batches:
            forward(model, images)
        if device.type == str(torch.accelerator.current_accelerator()):
            torch.accelerator.synchronize(device)
        return time.perf_counter() - begin

    return min(seconds() for _ in range(_REPEATS))


@dataclass(frozen=True)
class Speed:
    """Seconds of one image: of a forward pass, and of loading. The same in every process."""

    forward: float
    load: float = 0.0

    @classmethod
    def of(cls, subject: Subject, run: Run) -> "Speed":
        """The fastest of a few passes of a few images, so that other work counts little."""
        few = subject.limited(min(_TIMED, subject.num_images))
        begin = time.perf_counter()
        batches = [inputs_of(batch) for batch in few.batches()]
        loading = time.perf_counter() - begin
        with torch.no_grad(), run.compute.borrow(few.model), run.compute.autocast():
            batches = [on_device(b, run.compute) for b in batches]
            forwards = _fastest(few.model, batches, run.compute.torch_device)
        seconds = [forwards / few.num_images, loading / few.num_images]
        return cls(*map(max, zip(*gather(seconds), strict=True)))

    def seconds(self, analyses: Sequence[Analysis], subject: Subject) -> float:
        """Expected seconds of analyses that share one pass."""
        seconds_of = [
            a.cost(subject).seconds(subject.num_images, self.forward) for a in analyses
        ]
        if not sum(seconds_of):
            return 0.0
        pass_seconds = subject.num_images * self.forward
        return (
            sum(seconds_of)
            - (len(seconds_of) - 1) * pass_seconds
            + subject.num_images * self.load
        )
