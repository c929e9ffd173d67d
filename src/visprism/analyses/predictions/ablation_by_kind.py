"""Ablations by kind of block: mean drops, and differences between groups of blocks.

With d_ib the drop of image i without block b (1, 0 or -1), the mean of a group G is the mean
of d_iG = mean over b in G of d_ib, and its interval is over images.
"""

from collections.abc import Iterator
from itertools import combinations
from math import nan
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism import kit
from visprism.drawing import style
from visprism.estimates.estimated import skewed
from visprism.estimates.findings import chance_findings
from visprism.estimates.text import points_text

# Experiments of one part at a time, which are never ranked together: removing a convolution
# inside a block damages a path that the rest of the block still uses.
PARTS = {
    "block": "one whole block",
    "convolution": "one convolution inside a block",
    "head": "one attention head",
    "class tokens": "class tokens after one block",
    "registers": "registers after one block",
    "prefix tokens": "prefix tokens after one block",
}
RANKED = ("block", "convolution")  # with "zero" they pass their input on
_REPLACEMENTS = {
    "zero": "zero",
    "mean": "the mean over images",
    "shuffle": "the value for another image",
}
LATE_MINUS_EARLY = "late minus early"


def experiment_text(part: str, replacement: str) -> str:
    """An experiment with its replacement.

    Example:
        >>> experiment_text("block", "zero"), experiment_text("head", "zero")
        ('one whole block replaced by the identity', 'one attention head replaced by zero')
    """
    identity = replacement == "zero" and part in RANKED
    value = "the identity" if identity else _REPLACEMENTS[replacement]
    return f"{PARTS[part]} replaced by {value}"


@kit.result("ablations-by-kind", "Ablation by kind of block")
class KindAblations(kit.Result):
    """Mean accuracy drop over the blocks of a kind, and differences between such means.

    Mean accuracy drop over the blocks of a kind, and differences between kinds and between
    late and early blocks of a stage. Intervals are over images.

    One row for each mean or difference within one experiment. Intervals are over images: the
    drops of each image are averaged over blocks first. "early" and "late" are the first and the
    last half of the blocks of a kind within each stage, without the middle one of an odd
    number. Where several stages have both, each has a row, too.
    """

    row_names: ClassVar[tuple[str, ...]] = ("ablated", "comparison")

    ablated: kit.Texts = kit.column("Ablated part", "", "'block' or 'convolution'")
    comparison: kit.Texts = kit.column(
        "Comparison", "", "kind of block, or the difference between two groups of blocks"
    )
    num_blocks: np.ndarray = kit.column("Blocks", "", "number of blocks that are averaged")
    drop: kit.Estimated = kit.estimate(
        "Mean accuracy drop, or difference of two",
        kit.POINTS,
        "mean over blocks and images; with 'minus', the difference of two such means",
        asks="Which kinds of blocks does the accuracy depend on?",
    )
    replacement: str = kit.scalar("Replacement", "", "as in `Ablations`", default="zero")
    baseline_accuracy: float = kit.scalar(
        "Baseline accuracy", "", "accuracy of the model without ablation", default=nan
    )
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Each mean and each difference, with its interval."""
        yield from super().sentences()
        yield from chance_findings(self.baseline_accuracy, self.provenance, self.classes)

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """What is compared, and whether late or early blocks cost more."""
        part, comparison = str(self.ablated[row]), str(self.comparison[row])
        difference = "difference of mean accuracy drops" if " minus " in comparison else ""
        measure = f"{difference or 'mean accuracy drop'}, "
        measure += experiment_text(part, self.replacement)
        return {
            "quantity": f"{measure}, {comparison}",
            "measure": measure,
            "subject": comparison,
            "reading": self._late_or_early(row),
        }

    def _stages(self, row: int) -> list[int]:
        """The rows of the single stages of a row over all stages."""
        prefix = f"{self.comparison[row]}, stage "
        stages = np.char.startswith(self.comparison, prefix)
        return np.flatnonzero(stages & (self.ablated == self.ablated[row])).tolist()

    def _sign(self, row: int) -> int:
        """1 or -1 where the interval lies above or below 0, 0 elsewhere."""
        return int(self.drop.low[row] > 0) - int(self.drop.high[row] < 0)

    def _late_or_early(self, row: int) -> str:
        """Whether late or early blocks cost more, and whether stages disagree."""
        if LATE_MINUS_EARLY not in self.comparison[row]:
            return ""
        if {-1, 1} <= {self._sign(i) for i in self._stages(row)}:
            return "undecided (stages disagree)"
        return {1: "late blocks cost more", -1: "early blocks cost more"}.get(
            self._sign(row), "undecided (not significant)"
        )


def kind_ablations(rows: Any) -> KindAblations:
    """Mean drops by kind of block, and their differences, from `Ablations`."""
    by_image = rows.drop.by_unit
    contrasts = [c for part in RANKED for c in _contrasts(rows, part)]
    values = [
        by_image[:, plus].mean(1) - (by_image[:, minus].mean(1) if minus else 0.0)
        for _, _, plus, minus in contrasts
    ]
    return KindAblations(
        ablated=np.array([part for part, *_ in contrasts], dtype=str),
        comparison=np.array([name for _, name, *_ in contrasts], dtype=str),
        num_blocks=np.array([len(a) + len(b) for *_, a, b in contrasts], dtype=int),
        drop=kit.mean(np.stack(values, 1) if values else np.zeros((len(by_image), 0)), skewed),
        replacement=rows.replacement,
        baseline_accuracy=rows.baseline_accuracy,
        classes=rows.classes,
        provenance=rows.provenance,
    )


def _contrasts(ablations: Any, part: str) -> Iterator[tuple[str, str, list[int], list[int]]]:
    """Part, name, and the rows whose means are added and subtracted."""
    rows = np.flatnonzero(ablations.ablated == part)
    kinds = dict.fromkeys(ablations.kind[rows].tolist())
    groups = {kind: rows[ablations.kind[rows] == kind] for kind in kinds}
    for kind, group in groups.items():
        yield part, kind, group.tolist(), []
    for first, second in combinations(groups, 2):
        both = groups[first].tolist(), groups[second].tolist()
        yield part, f"{first} minus {second}", *both
    for kind, group in groups.items():
        halves = _halves(ablations, group)
        if not halves:
            continue
        name = f"{kind}, {LATE_MINUS_EARLY}"
        late = [row for _, second in halves.values() for row in second]
        early = [row for first, _ in halves.values() for row in first]
        yield part, name, late, early
        if len(halves) > 1:
            for stage, (first, second) in halves.items():
                yield part, f"{name}, stage {stage}", second, first


def _halves(ablations: Any, group: np.ndarray) -> dict[int, tuple[list[int], list[int]]]:
    """The first and the last half of the rows of each stage, the middle one in neither."""
    halves = {}
    for stage in dict.fromkeys(ablations.stage[group].tolist()):
        members = group[ablations.stage[group] == stage].tolist()
        if half := len(members) // 2:
            halves[stage] = members[:half], members[-half:]
    return halves


@kit.figure(width=3.4, height=2.2, share=False, share_values=True)
def _(result: KindAblations, ax: Axes) -> Axes:
    """Means by kind and their differences over all stages, with 95% intervals over images."""
    result = result.select(np.char.find(result.comparison, ", stage ") < 0)
    ax.axvline(0, color=style.FAINT, linewidth=0.6)
    parts, comparisons = result.ablated.tolist(), result.comparison.tolist()
    names = [f"{name} ({part}s)" for name, part in zip(comparisons, parts, strict=True)]
    about = [f"{name} · {points_text(d)}" for name, d in zip(names, result.drop, strict=True)]
    colors = [style.INK if "minus" in name else style.color_of(name) for name in comparisons]
    style.named_points(ax, names, result.drop, about, colors)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=None, symbol=""))
    ax.set(xlabel="Accuracy drop (points)")
    return ax
