"""Summaries by kind: how the blocks of one kind change a quantity, with intervals over images.

The blocks of one network are neighbors and not independent, so no test is made over blocks. The
uncertainty of one network's number comes from the images; a claim about an architecture is
replicated over trained seeds (`replicate_by_kind`).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import Any, NamedTuple

import numpy as np

from visprism.core.statistics import t_quantile
from visprism.results import questions
from visprism.results.answers import DISAGREE, ONE_MEASURE, Answer, Verdict
from visprism.results.base import Result, column, result_type
from visprism.results.findings import Finding
from visprism.results.shapes import PerBlock
from visprism.results.text import images_text, interval_text, resolved

TO_MEAN = "high-frequency log amplitude relative to the mean"
TO_LOWEST = "high-frequency log amplitude relative to the lowest frequency"
ABSOLUTE = "log amplitude at the highest frequency"
VARIANCE = "log variance"
SCALE_FREE = "log of variance over mean square"

# Quantities in logs, whose change is answered as a relative change: the name of what changes.
_RATIOS = {VARIANCE: "variance", SCALE_FREE: "variance over mean square"}

# What the paper claims of each kind: C6, attention is low-pass and the others high-pass; C8,
# attention lowers the variance and the others raise it.
EXPECTED = {"attention": -1, "conv": 1, "mlp": 1}


# What a change means that both measures of a claim agree on: -1 it falls, 1 it rises.
_READINGS = {
    "C6": {-1: "low-pass", 1: "high-pass"},
    "C8": {-1: "lower it", 1: "raise it"},
}


class Quantity(NamedTuple):
    """A quantity of a summary: its name, and the column of its change across a block."""

    name: str
    change: str


def mean_change(quantity: str, kind: str) -> str:
    """The name that answers give to the mean change of a quantity across a kind's blocks.

    Changes of logarithms are answered as relative changes, by the name of what changes.
    """
    return f"{_RATIOS.get(quantity, quantity)}, mean change across {kind} blocks"


def _upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """Files of 0.1 counted blocks without their errors, and had intervals over blocks."""
    rows = len(values["kind"])
    quantity = str(values["quantity"])
    unknown = np.full(rows, np.nan)
    return values | {
        "quantity": np.full(rows, TO_MEAN if quantity.startswith("high") else quantity),
        "rises": values["blocks"] - values["falls"],
        "undecided": np.zeros(rows, dtype=int),
        "low": unknown,
        "high": unknown,
    }


@result_type("kind-summary", schema=1, formerly="Tally", upgrades={0: _upgrade})
class KindSummary(Result):
    """Change of a quantity across the blocks of each kind; one row for each kind and quantity.

    A block falls or rises if the 95% interval of its change over images, by Student's t,
    excludes 0.
    """

    kind: np.ndarray = column("Kind", "", "'conv', 'attention', 'mlp', ...")
    quantity: np.ndarray = column("Quantity", "", "what changes across the blocks")
    blocks: np.ndarray = column("Blocks", "", "number of blocks that are counted")
    falls: np.ndarray = column("Falls", "", "number of blocks across which it falls")
    rises: np.ndarray = column("Rises", "", "number of blocks across which it rises")
    undecided: np.ndarray = column(
        "Undecided", "", "number of blocks whose change is not significant"
    )
    mean: np.ndarray = column("Mean change", "", "mean over the blocks of the kind")
    low: np.ndarray = column("95% interval, low", "", "of the mean change, over images")
    high: np.ndarray = column("95% interval, high", "", "of the mean change, over images")

    def directions(self) -> np.ndarray:
        """-1 where the mean change is significantly negative, 1 positive, 0 otherwise."""
        return np.where(self.high < 0, -1, np.where(self.low > 0, 1, 0))

    def findings(self) -> tuple[Finding, ...]:
        """A sentence for each kind, with its numbers."""
        if not len(self):
            return (
                Finding("no block lies on the same grid as the previous block, so no change"),
            )
        return _findings(self)

    def answers(self) -> tuple[Answer, ...]:
        """The mean change of each kind, by which claims C6 and C8 are judged."""
        return _answers(self)


def summarize(
    result: PerBlock, quantities: Sequence[Quantity], between: np.ndarray
) -> KindSummary:
    """The changes in columns of `result`, summarized by kind.

    For each quantity the column ``<change>_error`` is its standard error by block, and
    ``kind_<change>_error`` that of the mean over the blocks of one kind.
    """
    columns = result.columns()
    images = result.provenance.images
    rows: list[tuple] = []
    eligible = ~result.subsampling.astype(bool) & (between == "")
    for kind in dict.fromkeys(result.kind.tolist()):
        for name, change in quantities:
            counted = eligible & np.isfinite(columns[change]) & (result.kind == kind)
            if not counted.any():
                continue
            values, errors = columns[change][counted], columns[f"{change}_error"][counted]
            error = columns[f"kind_{change}_error"][counted][0]
            t = t_quantile(images)
            falls, rises = int((values < -t * errors).sum()), int((values > t * errors).sum())
            mean, margin = float(values.mean()), t * float(error)
            undecided = len(values) - falls - rises
            counts = (len(values), falls, rises, undecided)
            rows.append((kind, name, *counts, mean, mean - margin, mean + margin))
    return _table(rows, result)


def _table(rows: Sequence[tuple], result: PerBlock) -> KindSummary:
    names = ("kind", "quantity", "blocks", "falls", "rises", "undecided", "mean", "low", "high")
    kinds = (str, str, int, int, int, int, float, float, float)
    cells = zip(*rows, strict=True) if rows else [()] * len(names)
    columns: dict[str, Any] = {
        name: np.array(values, dtype=dtype)
        for name, values, dtype in zip(names, cells, kinds, strict=True)
    }
    return KindSummary(**columns, provenance=result.provenance)


# Sentences and headline numbers.


def _findings(summary: KindSummary) -> tuple[Finding, ...]:
    """A sentence for each kind."""
    findings = []
    for kind in dict.fromkeys(summary.kind.tolist()):
        rows = {q: int(i) for i, q in enumerate(summary.quantity) if summary.kind[i] == kind}
        if TO_MEAN in rows:
            findings.append(_fourier(summary, kind, rows))
        elif VARIANCE in rows:
            findings.append(_variance(summary, kind, rows))
        else:
            findings += [
                Finding(f"{kind} blocks, {q}: {_number(summary, i)} {_counts(summary, i)}")
                for q, i in rows.items()
            ]
    return tuple(findings)


def _fourier(summary: KindSummary, kind: str, rows: dict[str, int]) -> Finding:
    """Whether a kind is a low-pass or a high-pass filter, where both references agree."""
    mean, lowest = rows[TO_MEAN], rows.get(TO_LOWEST)
    text = (
        f"high-frequency log amplitude changes by {_number(summary, mean)} relative to the "
        f"mean {_counts(summary, mean)}"
    )
    if lowest is None:
        return Finding(f"{kind} blocks: {text}; {_over(summary)}")
    text += (
        f" and by {_number(summary, lowest)} relative to the lowest frequency "
        f"{_counts(summary, lowest)}"
    )
    highest = summary.mean[rows[ABSOLUTE]] if ABSOLUTE in rows else np.nan
    if np.isfinite(highest):
        zero, low = highest - summary.mean[mean], highest - summary.mean[lowest]
        text += (
            f"; the log amplitude itself changes by {zero:+.2g} at frequency 0, {low:+.2g} at "
            f"the lowest and {highest:+.2g} at the highest frequency"
        )
    signs = summary.directions()[[mean, lowest]]
    if signs[0] == signs[1] != 0:
        filter_ = "low-pass" if signs[0] < 0 else "high-pass"
        return Finding(f"{kind} blocks are {filter_}: {text}; {_over(summary)}")
    code = "VP107" if _disagree(summary, mean, lowest) else ""
    without = np.isnan(summary.low[[mean, lowest]]).any()  # `_over` says so
    end = "" if signs.any() or without else "; the mean change is not significant"
    return Finding(f"{kind} blocks: {text}; {_over(summary)}{end}", code)


def _disagree(summary: KindSummary, one: int, other: int) -> bool:
    """Whether a significant change has the other sign, or lies outside the other's interval."""
    signs, mean = summary.directions(), summary.mean
    return any(
        signs[a] != 0
        and (mean[a] * mean[b] < 0 or not summary.low[b] <= mean[a] <= summary.high[b])
        for a, b in ((one, other), (other, one))
    )


def _variance(summary: KindSummary, kind: str, rows: dict[str, int]) -> Finding:
    """Whether a kind raises or lowers the variance, and the scale-free variance."""
    parts = [_percent(summary, kind, rows[VARIANCE], "the feature-map variance")]
    if SCALE_FREE in rows:
        parts.append(_percent(summary, "", rows[SCALE_FREE], "variance over mean square"))
    return Finding(f"{'; '.join(parts)}; {_over(summary)}")


def _percent(summary: KindSummary, kind: str, row: int, quantity: str) -> str:
    sign = summary.directions()[row]
    mean, low, high = (
        100 * (exp(v) - 1) for v in (summary.mean[row], summary.low[row], summary.high[row])
    )
    form = resolved(mean, low, high, "+.3g")
    text = f"{mean:{form}}%"
    if np.isfinite([low, high]).all():
        text += f" [{low:{form}}%, {high:{form}}%]"
    text += f" {_counts(summary, row)}"
    if np.isnan(summary.low[row]):
        return f"{kind} blocks, {quantity}: {text}" if kind else f"{quantity}: {text}"
    if sign == 0:
        subject = f"{kind} blocks do not change {quantity} significantly" if kind else (
            f"the change of {quantity} is not significant"
        )  # fmt: skip
        return f"{subject}: {text}"
    verb = ("lower" if sign < 0 else "raise") if kind else "falls" if sign < 0 else "rises"
    return f"{kind} blocks {verb} {quantity}: {text}" if kind else f"{quantity} {verb}: {text}"


def _number(summary: KindSummary, row: int) -> str:
    mean, low, high = (float(ends[row]) for ends in (summary.mean, summary.low, summary.high))
    return interval_text(mean, low, high, "+.2g")


def _counts(summary: KindSummary, row: int) -> str:
    """How many blocks fall and rise: ``(falls in 3 of 4 blocks, rises in 1)``."""
    blocks = summary.blocks[row]
    counts = {
        "falls": summary.falls[row],
        "rises": summary.rises[row],
        "undecided": summary.undecided[row],
    }
    parts = [f"{word} in {n}" for word, n in counts.items() if n]
    parts[0] += f" of {blocks} block{'s' if blocks > 1 else ''}"
    return f"({', '.join(parts)})"


def _over(summary: KindSummary) -> str:
    """What the intervals are taken over."""
    origin = summary.provenance
    if not np.isfinite(summary.low).any():
        return "no interval, which takes the errors over at least 2 images"
    if not origin.images:
        return "intervals over the images"
    return f"intervals over {images_text(origin.images, origin.split)}"


def _answers(summary: KindSummary) -> tuple[Answer, ...]:
    """The mean change of each kind, with a verdict where the paper makes a claim."""
    answers = []
    directions = summary.directions()
    for kind in dict.fromkeys(summary.kind.tolist()):
        rows = {q: int(i) for i, q in enumerate(summary.quantity) if summary.kind[i] == kind}
        for pair, question, claim in (
            ((TO_MEAN, TO_LOWEST), questions.FILTERS, "C6"),
            ((VARIANCE, SCALE_FREE), questions.VARIANCE, "C8"),
        ):
            signs = [int(directions[rows[q]]) for q in pair if q in rows]
            agreed = signs[0] if len(signs) == 2 and signs[0] == signs[1] else 0
            unclear = "not significant"
            if any(signs):
                unclear = DISAGREE if {-1, 1} <= {*signs} else ONE_MEASURE
            answers += [
                replace(
                    _answer(summary, rows[quantity], kind),
                    question=question.text,
                    claim=claim if kind in EXPECTED else "",
                    verdict=_verdict(agreed, EXPECTED[kind]) if kind in EXPECTED else "",
                    reading=_READINGS[claim].get(agreed, f"undecided ({unclear})"),
                )
                for quantity in pair
                if quantity in rows
            ]
    return tuple(answers)


def _answer(summary: KindSummary, row: int, kind: str) -> Answer:
    """The mean change in one row, not yet of a question."""
    values = [float(v[row]) for v in (summary.mean, summary.low, summary.high)]
    quantity = str(summary.quantity[row])
    in_logs = quantity in _RATIOS
    if in_logs:
        values = [exp(v) - 1 for v in values]
    return Answer(
        "",
        mean_change(quantity, kind),
        *values,
        unit="%" if in_logs else "",
        average="geometric" if in_logs else "arithmetic",
        over="images",
        subject=f"{kind} blocks",
        measure=f"{_RATIOS.get(quantity, quantity)}, mean change across the blocks of a kind",
    )


def _verdict(direction: int, expected: int) -> Verdict:
    """What a significant direction (-1, 1; 0: not significant) says about an expected one."""
    if direction == 0:
        return "undecided"
    return "supports" if direction == expected else "contradicts"
