"""Changes by kind: how the blocks of one kind change a quantity, with intervals over images.

The blocks of one network are neighbors and not independent, so no test is made over blocks. The
uncertainty of one network's number comes from the images; a claim about an architecture takes
networks of several trained seeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import expm1
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from visprism.estimates.answers import Answer, EstimateInfo
from visprism.estimates.estimated import Estimated, mean, student
from visprism.estimates.findings import Finding
from visprism.estimates.questions import declared_question
from visprism.estimates.text import MINUS
from visprism.table.result import Result, Texts, column, estimate, result_type


@dataclass(frozen=True)
class Change:
    """A quantity whose change across blocks is summarized by kind."""

    id: str  # in files; it never changes
    label: str  # of what changes
    asks: str = ""  # the question that it answers
    # What a change means that both measures of a question agree on: -1 it falls, 1 it rises.
    readings: tuple[tuple[int, str], ...] = ()
    in_logs: bool = False  # a change of a log, answered as a relative change of `label`
    to: str = ""  # what it is relative to


_FILTERS = ("Are blocks low-pass or high-pass filters?", ((-1, "low-pass"), (1, "high-pass")))
_VARIANCE = ("Do blocks lower or raise the variance?", ((-1, "lower it"), (1, "raise it")))
TO_MEAN = Change(
    "high-frequency",
    "high-frequency log amplitude relative to the mean",
    *_FILTERS,
    to="to the mean",
)
TO_LOWEST = Change(
    "high-frequency-to-lowest",
    "high-frequency log amplitude relative to the lowest frequency",
    *_FILTERS,
    to="to the lowest",
)
VARIANCE = Change("log-variance", "variance", *_VARIANCE, in_logs=True, to="of variance")
SCALE_FREE = Change(
    "log-relative-variance",
    "variance over mean square",
    *_VARIANCE,
    in_logs=True,
    to="of variance / mean square",
)
GAIN_TO_MEAN = Change(
    "gain-to-mean", "high-frequency log gain of the branch relative to the mean"
)
GAIN_TO_LOWEST = Change(
    "gain-to-lowest", "high-frequency log gain of the branch relative to the lowest frequency"
)
_ALL = (TO_MEAN, TO_LOWEST, VARIANCE, SCALE_FREE, GAIN_TO_MEAN, GAIN_TO_LOWEST)
CHANGES = {c.id: c for c in _ALL}


@result_type("kind-summary", "{main} by kind of block")
class KindSummary(Result):
    """Change of a quantity across the blocks of each kind; one row for each kind and quantity.

    Each point is the mean change across the blocks of one kind, with its 95% interval over
    images; a change of -0.69 of a logarithm halves the quantity. Where a quantity has two
    measures, a kind is read as lowering or raising it only if both agree. The interval
    describes this network; other trained seeds may differ.

    A block falls or rises if the 95% interval of its change over images, by Student's t,
    excludes 0. Counted are blocks on the grid of the previous block with no block off the grid
    between them; blocks that subsample are left out.
    """

    kind: Texts = column("Kind", "", "'conv', 'attention', 'mlp', ...")
    quantity: Texts = column("Quantity", "", "identifier of what changes")
    blocks: np.ndarray = column("Blocks", "", "number of blocks that are counted")
    falls: np.ndarray = column("Falls", "", "number of blocks across which it falls")
    rises: np.ndarray = column("Rises", "", "number of blocks across which it rises")
    mean: Estimated = estimate("Mean change", "", "mean over the blocks of the kind", keep=True)

    def directions(self) -> np.ndarray:
        """-1 where the mean change is significantly negative, 1 positive, 0 otherwise."""
        return np.where(self.mean.high < 0, -1, np.where(self.mean.low > 0, 1, 0))

    def of_kind(self, kind: str) -> dict[str, int]:
        """Rows of a kind by quantity."""
        return {str(q): i for i, q in enumerate(self.quantity) if self.kind[i] == kind}

    def sentences(self) -> Iterator[str | Finding]:
        """The mean change of each kind and quantity."""
        if not len(self):
            yield "no block has a change: none lies on the grid before it, or adds to it"
        yield from (self._answer(i).sentence(self.units_text) for i in range(len(self)))

    def answers(self) -> tuple[Answer, ...]:
        """The mean change of each kind."""
        return tuple(
            self._answer(row)
            for row, quantity in enumerate(self.quantity)
            if CHANGES[str(quantity)].asks
        )

    def _answer(self, row: int) -> Answer:
        kind, change = str(self.kind[row]), CHANGES[str(self.quantity[row])]
        rows = [i for q, i in self.of_kind(kind).items() if CHANGES[q].asks == change.asks]
        info = EstimateInfo(
            f"{change.label}, mean change across {kind} blocks",
            unit="%" if change.in_logs else "",
            question=declared_question(change.asks) if change.asks else None,
            average="geometric" if change.in_logs else "arithmetic",
        )
        return info.answer(
            f"{self.identifier}:{change.id}:{kind}",
            self.mean[row],
            subject=f"{kind} blocks",
            measure=f"{change.label}, mean change across the blocks of a kind",
            reading=self._reading(rows, change) if change.readings else "",
        )

    def _reading(self, rows: Sequence[int], change: Change) -> str:
        """A word if all blocks agree by both measures, else how many lower and raise it."""
        if not np.isfinite(self.mean.low[rows]).all():
            return "undecided (no interval)"
        signs = {int(sign) for sign in self.directions()[rows]}
        means = [float(self.mean[i]) for i in rows]
        if change.in_logs:
            means = [expm1(mean) for mean in means]
        form = "+.0%" if change.in_logs else "+.3f"
        texts = [f"{mean:{form}}".replace("-", MINUS) for mean in means]
        if signs == {-1, 1}:
            of = [CHANGES[str(self.quantity[i])].to for i in rows]
            return ", ".join(f"{text} {to}" for text, to in zip(texts, of, strict=True))
        falls, rises, blocks = (x[rows[0]] for x in (self.falls, self.rises, self.blocks))
        (sign,) = signs if len(signs) == 1 and len(rows) > 1 else (0,)
        counts = {-1: self.falls, 1: self.rises}.get(sign)
        if counts is not None and (counts[rows] == self.blocks[rows]).all():
            return dict(change.readings)[sign]
        return f"{falls} of {blocks} lower, {rises} raise (mean {texts[0]})"


def summarize_by_kind(
    changes: Mapping[Change, Float[np.ndarray, "n blocks"]],
    kinds: Sequence[str],
    eligible: Bool[np.ndarray, " blocks"],
) -> KindSummary:
    """The mean change of each quantity across the blocks of each kind."""
    rows: list[tuple[Any, ...]] = []
    means: list[np.ndarray] = []
    for kind in dict.fromkeys(kinds):
        of_kind = eligible & (np.array(kinds) == kind)
        for change, values in changes.items():
            counted = of_kind & np.isfinite(values).any(0)
            if not counted.any():
                continue
            low, high = student(values[:, counted])
            falls, rises = int((high < 0).sum()), int((low > 0).sum())
            rows.append((kind, change.id, int(counted.sum()), falls, rises))
            means.append(values[:, counted].mean(1))
    names = ("kind", "quantity", "blocks", "falls", "rises")
    types = (str, str, int, int, int)
    cells = zip(*rows, strict=True) if rows else [()] * len(names)
    columns: dict[str, Any] = {
        name: np.array(values, dtype=dtype)
        for name, values, dtype in zip(names, cells, types, strict=True)
    }
    by_image = np.stack(means, axis=1) if means else np.zeros((1, 0))
    return KindSummary(**columns, mean=mean(by_image))
