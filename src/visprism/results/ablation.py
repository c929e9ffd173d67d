"""Ablations: accuracy and NLL of a trained model without one of its parts."""

from typing import Any

import numpy as np

from visprism.core.errors import InputError
from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer, Verdict
from visprism.estimates.chance import at_chance, chance_findings
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, missing_interval, points_text, selection_text
from visprism.table.result import Result, column, result_type, scalar

# Experiments of one part at a time, which are never ranked together: removing a convolution
# inside a block damages a path that the rest of the block still uses.
_PARTS = {
    "block": "one whole block",
    "convolution": "one convolution inside a block",
    "head": "one attention head",
    "channel": "one channel of a block",
    "class tokens": "class tokens after one block",
    "registers": "registers after one block",
    "prefix tokens": "prefix tokens after one block",
}
_IDENTITY = frozenset({"block", "convolution"})  # with "zero" they pass their input on
_REPLACEMENTS = {
    "zero": "zero",
    "mean": "the mean over images",
    "shuffle": "the value for another image",
}


def experiment_text(part: str, replacement: str) -> str:
    """An experiment with its replacement.

    Example:
        >>> experiment_text("block", "zero"), experiment_text("head", "zero")
        ('one whole block replaced by the identity', 'one attention head replaced by zero')
    """
    identity = replacement == "zero" and part in _IDENTITY
    value = "the identity" if identity else _REPLACEMENTS[replacement]
    return f"{_PARTS[part]} replaced by {value}"


def mean_drop_label(part: str, comparison: str, replacement: str) -> str:
    """Name of a mean accuracy drop, or of a difference of two means."""
    names = "mean accuracy drop", experiment_text(part, replacement), comparison
    return ", ".join(filter(None, names))


def _part_text(rows: "Ablations", row: int) -> str:
    """Name of the ablated block, with the part of it where that is not all."""
    part = str(rows.ablated[row])
    return f"{rows.block[row]}{'' if part == 'block' else f', {part}'}"


LATE_MINUS_EARLY = "late minus early"
_EARLY_CONV, _LATE_ATTENTION = (f"{kind}, {LATE_MINUS_EARLY}" for kind in ("conv", "attention"))


@result_type("ablations")
class Ablations(Result):
    """Accuracy and NLL without one part; one row for each ablation.

    Drops are paired by image. Their 95% interval is that of Bonett and Price for paired
    proportions.
    """

    block: np.ndarray = column(
        "Block", "", "name of the block; of several all names, joined by '+'"
    )
    kind: np.ndarray = column("Kind", "", "kind of the block, or 'several'")
    stage: np.ndarray = column(
        "Stage", "", "0 for the stem, then one more at each smaller spatial grid"
    )
    depth: np.ndarray = column(
        "Normalized depth", "", "0 for the stem, 1 for the last block; NaN for several blocks"
    )
    subsampling: np.ndarray = column(
        "Subsampling", "", "whether its spatial grid is smaller than that of the block before"
    )
    ablated: np.ndarray = column(
        "Ablated part",
        "",
        "'block', 'convolution', 'head 3', 'channel 7', 'registers', ..., or 'several' blocks",
    )
    num_blocks: np.ndarray = column("Blocks", "", "number of blocks ablated together")
    accuracy: np.ndarray = column("Accuracy", "", "accuracy of the ablated model")
    drop: np.ndarray = column(
        "Accuracy drop", "", "accuracy of the model minus that of the ablated model"
    )
    drop_low: np.ndarray = column(
        "Accuracy drop, low", "", "lower end of the 95% interval over images"
    )
    drop_high: np.ndarray = column(
        "Accuracy drop, high", "", "upper end of the 95% interval over images"
    )
    nll: np.ndarray = column("NLL", "nats", "negative log-likelihood of the ablated model")
    nll_rise: np.ndarray = column(
        "NLL rise", "nats", "NLL of the ablated model minus that of the model"
    )
    nll_rise_error: np.ndarray = column(
        "Standard error of the NLL rise", "nats", "over images, paired"
    )
    partial: np.ndarray = column(
        "Partial pass", "", "whether only what follows the ablated part was computed"
    )
    baseline_accuracy: float = scalar(
        "Baseline accuracy", "", "accuracy of the model without ablation", default=float("nan")
    )
    baseline_nll: float = scalar(
        "Baseline NLL", "nats", "NLL of the model without ablation", default=float("nan")
    )
    not_ablated: str = scalar(
        "Not ablated", "", "parts that could not be ablated, and why", default=""
    )
    replacement: str = scalar(
        "Replacement",
        "",
        "of what a part adds or of its output: 'zero', 'mean' over images or 'shuffle'",
        default="zero",
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)
    blocks: int = scalar("Blocks", "", "number of blocks between stem and head", default=0)

    def experiment(self, name: str) -> "Ablations":
        """The rows of one experiment: "block", "convolution", "head", "registers", ..."""
        if name in ("head", "channel"):
            return self.select(np.char.startswith(self.ablated, f"{name} "))
        return self.select(self.ablated == name)

    def has_figure(self, **options: Any) -> bool:
        """Whether the experiment of the figure was made; blocks always have a figure."""
        ablated = options.get("ablated", "block")
        return ablated == "block" or len(self.experiment(ablated)) > 0

    def joint(self) -> "JointAblations":
        """Joint ablations beside the sum of the drops of their blocks one by one.

        Source: Veit et al. (2016), Residual networks behave like ensembles of relatively
        shallow networks, fig. 5.
        """
        several = self.select(self.ablated == "several")
        if not len(several):
            raise InputError(
                "ablations must include some of several blocks, got none. Pass joint=(2, 4) to "
                "ablation."
            )
        single = self.experiment("block")
        single = single if len(single) else self.experiment("convolution")
        drops = dict(zip(single.block.tolist(), single.drop.tolist(), strict=True))
        sums = np.array([sum(drops[b] for b in name.split("+")) for name in several.block])
        numbers = np.unique(several.num_blocks)
        rows = [several.num_blocks == n for n in numbers]
        return JointAblations(
            num_blocks=numbers,
            draws=np.array([r.sum() for r in rows]),
            accuracy=np.array([several.accuracy[r].mean() for r in rows]),
            drop=np.array([several.drop[r].mean() for r in rows]),
            drop_min=np.array([several.drop[r].min() for r in rows]),
            drop_max=np.array([several.drop[r].max() for r in rows]),
            sum_of_drops=np.array([sums[r].mean() for r in rows]),
            nll_rise=np.array([several.nll_rise[r].mean() for r in rows]),
            baseline_accuracy=self.baseline_accuracy,
            provenance=self.provenance,
        )

    def findings(self) -> tuple[Finding, ...]:
        """Per experiment: significant drops, and the largest, named as a maximum."""
        images = images_text(self.provenance.images, self.provenance.split)
        texts = []
        for name in _PARTS:
            rows = self.experiment(name)
            if not len(rows):
                continue
            significant = int((rows.drop_low > 0).sum())
            tests = "" if len(rows) == 1 else ", not adjusted for multiple comparisons"
            texts.append(
                f"{experiment_text(name, self.replacement)}: accuracy drops significantly from "
                f"{self.baseline_accuracy:.1%} in "
                f"{_share(significant, len(rows))} ablations ({images}{tests})"
                f"{rows._largest() if significant or len(rows) == 1 else ''}"
            )
        if not self.partial.all():
            texts.append(
                f"{(~self.partial).sum()} of {len(self)} ablations ran the full model, because "
                "a forward pass cannot start at their cut"
            )
        if self.not_ablated:
            texts.append(f"not ablated: {self.not_ablated.rstrip('.')}")
        return (*(Finding(text) for text in texts), *_chance(self))

    def _largest(self) -> str:
        """The ablation with the largest drop, a selected maximum."""
        worst = int(self.drop.argmax())
        return (
            f"; largest drop of {len(self)}: {_part_text(self, worst)} ({self.kind[worst]}), "
            f"{points_text(self.drop[worst], self.drop_low[worst], self.drop_high[worst])}"
            f"{selection_text(len(self))}"
        )

    def answers(self) -> tuple[Answer, ...]:
        """The largest drop over blocks and over convolutions, selected maxima."""
        answers = []
        for name in ("block", "convolution"):
            rows = self.experiment(name)
            if len(rows):
                worst = int(rows.drop.argmax())
                answers.append(
                    Answer(
                        question=questions.IMPORTANCE.text,
                        quantity="largest accuracy drop, "
                        + experiment_text(name, self.replacement),
                        value=float(rows.drop[worst]),
                        low=float(rows.drop_low[worst]),
                        high=float(rows.drop_high[worst]),
                        unit=POINTS,
                        over="images",
                        selected=len(rows),
                        left_out=max(self.blocks - len(rows), 0) if name == "block" else 0,
                        subject=_part_text(rows, worst),
                    )
                )
        return tuple(answers)


@result_type("ablations-by-kind")
class KindAblations(Result):
    """Mean accuracy drop over the blocks of a kind, and differences between such means.

    One row for each mean or difference within one experiment. Intervals are over images: the
    drops of each image are averaged over blocks first. "early" and "late" are the first and the
    last half of the blocks of a kind within each stage, without the middle one of an odd
    number. Where several stages have both, each has a row, too.
    """

    ablated: np.ndarray = column("Ablated part", "", "'block' or 'convolution'")
    comparison: np.ndarray = column(
        "Comparison", "", "kind of block, or the difference between two groups of blocks"
    )
    num_blocks: np.ndarray = column("Blocks", "", "number of blocks that are averaged")
    drop: np.ndarray = column(
        "Mean accuracy drop", "", "mean over blocks and images, or difference of two means"
    )
    drop_low: np.ndarray = column("Low", "", "lower end of the 95% interval over images")
    drop_high: np.ndarray = column("High", "", "upper end of the 95% interval over images")
    replacement: str = scalar("Replacement", "", "as in `Ablations`", default="zero")
    baseline_accuracy: float = scalar(
        "Baseline accuracy", "", "accuracy of the model without ablation", default=float("nan")
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def findings(self) -> tuple[Finding, ...]:
        """Each mean and each difference, with its interval."""
        images = images_text(self.provenance.images, self.provenance.split)
        texts = []
        for i, (ablated, comparison) in enumerate(
            zip(self.ablated.tolist(), self.comparison.tolist(), strict=True)
        ):
            text = (
                f"{experiment_text(ablated, self.replacement)}, {comparison}: mean accuracy "
                "drop "
                f"{points_text(self.drop[i], self.drop_low[i], self.drop_high[i])} over "
                f"{self.num_blocks[i]} block{'s' * bool(self.num_blocks[i] > 1)} and {images}"
            )
            text += missing_interval(float(self.drop_low[i]), self.provenance.images)
            if self.drop_low[i] <= 0 <= self.drop_high[i]:
                text += ", not significant"
            if {-1, 1} <= {self._sign(stage) for stage in self._stages(i)}:
                text += "; stages disagree"
            texts.append(text)
        return (*(Finding(text) for text in texts), *_chance(self))

    def answers(self) -> tuple[Answer, ...]:
        """Means by kind, and late minus early blocks, of which claim C10 is about."""
        return tuple(
            Answer(
                question=questions.KINDS.text,
                quantity=mean_drop_label(str(ablated), str(comparison), self.replacement),
                value=float(self.drop[i]),
                low=float(self.drop_low[i]),
                high=float(self.drop_high[i]),
                unit=POINTS,
                over="images",
                claim="C10" if comparison in (_EARLY_CONV, _LATE_ATTENTION) else "",
                verdict=self._shared_verdict(i),
                reading=self._reading(i),
                subject=str(comparison),
                measure=mean_drop_label(str(ablated), "", self.replacement),
            )
            for i, (ablated, comparison) in enumerate(
                zip(self.ablated.tolist(), self.comparison.tolist(), strict=True)
            )
        )

    def _shared_verdict(self, row: int) -> Verdict:
        """That of ablated blocks and of ablated convolutions; undecided if they disagree."""
        same = np.flatnonzero(self.comparison == self.comparison[row])
        verdicts: set[Verdict] = {self._verdict(int(i)) for i in same}
        return verdicts.pop() if len(verdicts) == 1 else "undecided"

    def _verdict(self, row: int) -> Verdict:
        """Claim C10: early convolutions and late attentions of a stage matter most.

        None for a model whose accuracy is not significantly above chance.
        """
        if at_chance(self.baseline_accuracy, self.provenance.images, self.classes):
            return ""
        sign = {_EARLY_CONV: -1, _LATE_ATTENTION: 1}.get(str(self.comparison[row]))
        if sign is None:
            return ""
        signs = {self._sign(i) for i in [row, *self._stages(row)]} - {0}
        if len(signs) > 1 or not self._sign(row):
            return "undecided"
        return "supports" if self._sign(row) == sign else "contradicts"

    def _stages(self, row: int) -> list[int]:
        """The rows of the single stages of a row over all stages."""
        prefix = f"{self.comparison[row]}, stage "
        return [
            i
            for i, comparison in enumerate(self.comparison.tolist())
            if comparison.startswith(prefix) and self.ablated[i] == self.ablated[row]
        ]

    def _sign(self, row: int) -> int:
        """1 or -1 where the interval lies above or below 0, 0 elsewhere."""
        return int(self.drop_low[row] > 0) - int(self.drop_high[row] < 0)

    def _reading(self, row: int) -> str:
        """Whether late or early blocks cost more, and whether stages disagree."""
        if LATE_MINUS_EARLY not in self.comparison[row]:
            return ""
        signs = {self._sign(i) for i in self._stages(row)}
        if {-1, 1} <= signs:
            return "undecided (stages disagree)"
        return {1: "late blocks cost more", -1: "early blocks cost more"}.get(
            self._sign(row), "undecided (not significant)"
        )


@result_type("joint-ablations")
class JointAblations(Result):
    """Several blocks ablated together, drawn at random; one row for each number of blocks."""

    num_blocks: np.ndarray = column("Blocks", "", "number of blocks ablated together")
    draws: np.ndarray = column("Draws", "", "number of random sets of blocks")
    accuracy: np.ndarray = column("Accuracy", "", "mean over the draws")
    drop: np.ndarray = column("Accuracy drop", "", "mean over the draws")
    drop_min: np.ndarray = column("Smallest accuracy drop", "", "of all draws")
    drop_max: np.ndarray = column("Largest accuracy drop", "", "of all draws")
    sum_of_drops: np.ndarray = column(
        "Sum of single drops", "", "sum of the drops of the blocks one by one, mean over draws"
    )
    nll_rise: np.ndarray = column("NLL rise", "nats", "mean over the draws")
    baseline_accuracy: float = scalar(
        "Baseline accuracy", "", "accuracy of the model without ablation", default=float("nan")
    )

    def findings(self) -> tuple[Finding, ...]:
        """Each number of blocks: joint drop, range over draws, and sum of single drops."""
        images = images_text(self.provenance.images, self.provenance.split)
        return tuple(
            Finding(
                f"{self.num_blocks[i]} blocks removed together: mean accuracy drop "
                f"{100 * self.drop[i]:.1f} percentage points ({100 * self.drop_min[i]:.1f} to "
                f"{100 * self.drop_max[i]:.1f} in {self.draws[i]} draws), sum of the single "
                f"drops {100 * self.sum_of_drops[i]:.1f} ({images})"
            )
            for i in range(len(self))
        )


def _chance(result: Ablations | KindAblations) -> tuple[Finding, ...]:
    origin = result.provenance
    return chance_findings(
        result.baseline_accuracy, origin.images, result.classes, origin.split
    )


def _share(number: int, total: int) -> str:
    return f"{number} of {total}" if number < total or total == 1 else f"each of {total}"
