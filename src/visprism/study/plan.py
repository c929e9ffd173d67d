"""Plans: which analyses run, on how many images, and how long that is expected to take.

All models of a study are measured on the same number of images by each analysis; the slowest
model decides what a time budget allows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from visprism.analyses.base import Analysis, FeatureAnalysis
from visprism.study.workload import Workload

_COMFORTABLE = 128  # images: an analysis is made coarser before it is given fewer
_RESERVE = 0.8  # part of a budget that is planned; estimates err
_ROUNDING = 1e-6  # seconds
_LONG, _HOUR = 10.0, 3600.0  # seconds from which on no fraction, or minutes, are printed


@dataclass(frozen=True)
class Step:
    """One entry of a plan: analyses that run together, on so many images."""

    label: str
    analyses: tuple[Analysis, ...]  # one, or all that share the pass over feature maps
    images: int
    seconds: Mapping[str, float]  # expected, by model
    comparing: float = 0.0  # seconds that comparisons of the models are expected to take

    @property
    def names(self) -> frozenset[str]:
        """Names of the analyses."""
        return frozenset(a.name for a in self.analyses)

    @property
    def parts(self) -> dict[str, float]:
        """Expected seconds by model, and of comparisons if they take time."""
        return {**self.seconds, **({"comparisons": self.comparing} if self.comparing else {})}

    @property
    def total(self) -> float:
        """Expected seconds of all models and of their comparisons."""
        return sum(self.seconds.values(), start=self.comparing)


@dataclass(frozen=True)
class Shortage:
    """An analysis without room in a budget: its cheapest variant, and the seconds for it."""

    images: int
    needed: float  # seconds
    allowance: float  # seconds

    @property
    def ratio(self) -> float:
        """Needed seconds over the allowance."""
        return self.needed / max(self.allowance, 1e-9)

    def __str__(self) -> str:
        """Reason why the analysis is left out."""
        needed, allowance = _duration(self.needed), _duration(self.allowance)
        if needed == allowance:
            needed, allowance = f"{self.needed:.3g} s", f"{self.allowance:.3g} s"
        number = allowance.split()[0]
        verb = "is" if float(number) <= 1 else "are"
        return (
            f"{self.images} images would take about {needed}, and {allowance} of the time "
            f"budget {verb} left for it."
        )


@dataclass(frozen=True)
class Plan:
    """The steps of a study in order."""

    steps: tuple[Step, ...] = ()
    too_slow: Mapping[str, Shortage] = field(default_factory=dict)  # by name of the analysis
    budget: float | None = None  # seconds
    spent: float = 0.0  # seconds of the budget that are not for measurements

    @property
    def seconds(self) -> float:
        """Expected seconds of all steps."""
        return sum((step.total for step in self.steps), start=0.0)

    def lines(self) -> list[str]:
        """The plan as text, a line per step."""
        width = max((len(step.label) for step in self.steps), default=0)
        rows = [
            f"{step.label:<{width}}  {step.images:>6} image{'s' if step.images != 1 else ' '}  "
            + "  ".join(f"{name}: {s:.1f} s" for name, s in step.parts.items())
            for step in self.steps
        ]
        digits = 0 if self.seconds >= _LONG else 1
        expected = f"{self.seconds:.{digits}f} s expected for measurements"
        rows.append(f"{'total':<{width}}  {expected}; {self._limit()}")
        if self.budget is not None and self.budget <= self.spent:
            rows.append(
                "No time is left for measurements: loading, timing and files take the whole "
                "budget. Use a longer one."
            )
        return rows

    def _limit(self) -> str:
        """What the expected seconds do not include, and the budget."""
        if self.budget is None:
            return "loading, timing and files are not included"
        budget = _budget_text(self.budget)
        if self.spent < 1:
            return f"the budget is {budget}"
        return f"of the budget of {budget}, loading, timing and files take {self.spent:.0f} s"


def _budget_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _HOUR else f"{seconds / 60:.0f} min"


def plan_of(workload: Workload, analyses: Iterable[Analysis], budget: float | None) -> Plan:
    """The steps for these models within a budget in seconds; None for no limit.

    Analyses without a share always run; they take what they need, at most half of the budget
    where others wait. The rest is divided among the others by their shares. What one does not
    need goes to the others.
    """
    groups = [g for g in _groups(analyses) if workload.subjects_of(g)]
    if budget is None:
        return Plan(tuple(_full(g, workload) for g in groups))
    left = max(_RESERVE * budget, 0.0)
    always = [g for g in groups if not _share(g)]
    needed = sum(_full(g, workload).total for g in always)
    reserved = min(needed, left / 2)
    waiting = [g for g in groups if _share(g)]
    steps, too_slow = _divided(waiting, workload, left - reserved)
    left -= sum(step.total for step in steps.values())
    for group in always:
        allowance = _full(group, workload).total
        if left < needed - _ROUNDING:
            allowance *= left / needed
        steps[group[0].name] = _fitted(group, workload, allowance) or _fewest(group, workload)
    ordered = tuple(steps[g[0].name] for g in groups if g[0].name in steps)
    return Plan(ordered, too_slow, budget)


def minutes_with_room(
    workload: Workload, analyses: Iterable[Analysis], budget: float, spent: float = 0.0
) -> dict[str, int]:
    """A time budget in minutes that has room for each analysis that `budget` has none for.

    The plans of longer and longer budgets are made, each by half longer than the one before.
    Of each, `spent` seconds are not for measurements.
    """
    analyses = tuple(analyses)
    minutes: dict[str, int] = {}
    longer = max(1, ceil(budget / 60))
    without = set(plan_of(workload, analyses, budget - spent).too_slow)
    while without:
        longer = ceil(1.5 * longer)
        remaining = without & set(plan_of(workload, analyses, 60.0 * longer - spent).too_slow)
        minutes |= dict.fromkeys(without - remaining, longer)
        without = remaining
    return minutes


def _divided(
    groups: Sequence[tuple[Analysis, ...]], workload: Workload, seconds: float
) -> tuple[dict[str, Step], dict[str, Shortage]]:
    """Steps of groups that divide `seconds` by their shares, and groups without room.

    A group whose part is too short is left out, the one that lacks most first, and its part
    goes to the others.
    """
    too_slow: dict[str, Shortage] = {}
    members = list(groups)
    while True:
        steps, lacking = _by_share(members, workload, seconds)
        if not lacking:
            return steps, too_slow
        longest = max(lacking, key=lambda name: lacking[name].ratio)
        too_slow[longest] = lacking[longest]
        members = [g for g in members if g[0].name != longest]


def _by_share(
    groups: Iterable[tuple[Analysis, ...]], workload: Workload, seconds: float
) -> tuple[dict[str, Step], dict[str, Shortage]]:
    """Steps within the share of each group, and groups whose share is too short for any."""
    steps: dict[str, Step] = {}
    lacking: dict[str, Shortage] = {}
    # The cheapest first: what they leave of their share goes to the others.
    waiting = sorted(groups, key=lambda g: _full(g, workload).total / _share(g))
    while waiting:
        group = waiting.pop(0)
        part = _share(group) / (_share(group) + sum(map(_share, waiting)))
        step = _fitted(group, workload, seconds * part)
        if step is None:
            lacking[group[0].name] = _shortage(group[0], workload, seconds * part)
        else:
            steps[group[0].name] = step
            seconds -= step.total
    return steps, lacking


def _groups(analyses: Iterable[Analysis]) -> list[tuple[Analysis, ...]]:
    analyses = list(analyses)
    features = tuple(a for a in analyses if isinstance(a, FeatureAnalysis))
    others: list[tuple[Analysis, ...]] = [
        (a,) for a in analyses if not isinstance(a, FeatureAnalysis)
    ]
    return [features, *others] if features else others


def _share(group: Sequence[Analysis]) -> float:
    return sum(a.share for a in group)


def step_of(group: tuple[Analysis, ...], workload: Workload, images: int) -> Step:
    """The step of these analyses on so many images."""
    label = ", ".join(a.name for a in group)
    seconds, comparing = workload.seconds(group, images), workload.comparing(group, images)
    return Step(label, group, images, seconds, comparing)


def _full(group: tuple[Analysis, ...], workload: Workload) -> Step:
    return step_of(group, workload, workload.most(group))


def _fewest(group: tuple[Analysis, ...], workload: Workload) -> Step:
    """The step with the smallest number of images that its analyses measure."""
    return step_of(group, workload, min(_min_images(group), workload.most(group)))


def _min_images(group: Sequence[Analysis]) -> int:
    return max(a.min_images for a in group)


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
    if images < min(_min_images(group), most):
        return None
    return step_of(group, workload, images)


def _affordable(group: tuple[Analysis, ...], workload: Workload, allowance: float) -> int:
    """The largest number of images that all models together can measure in `allowance`."""
    low, high = 0, workload.most(group)
    while low < high:
        middle = (low + high + 1) // 2
        fits = step_of(group, workload, middle).total <= allowance
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _shortage(analysis: Analysis, workload: Workload, allowance: float) -> Shortage:
    while (cheaper := analysis.coarser()) is not None:
        analysis = cheaper
    step = _fewest((analysis,), workload)
    return Shortage(step.images, step.total, allowance)


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.0f} s"
