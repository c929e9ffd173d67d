"""Groups: seeds of one architecture as one row, with intervals over seeds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import nan

import numpy as np

from visprism.core.statistics import t_interval
from visprism.estimates.answers import Answer
from visprism.report.rows import Difference, Pair, Row, adjusted, margin_of

SEEDS = "seeds"


def group_rows(rows: Sequence[Row], groups: Mapping[str, Sequence[str]]) -> list[Row]:
    """The rows of a table with groups of models in place of the models.

    The answer of a group is the mean of its models, with Student's interval over them: it
    covers other trained seeds, on these images. Two groups of equally many models are paired
    in the order of their models, others are compared by Welch's interval.

    Args:
        rows: of the models; those about two models together are left out.
        groups: names of models by the name of their group.
    """
    grouped = []
    for row in rows:
        members = {
            group: [row.cells[name] for name in names if name in row.cells]
            for group, names in groups.items()
        }
        members = {group: answers for group, answers in members.items() if answers}
        if not members:
            continue
        cells = {group: _mean(answers) for group, answers in members.items()}
        differences: dict[Pair, Difference] = {}
        for pair in combinations(cells, 2):
            first, second = (np.array([a.value for a in members[group]]) for group in pair)
            margin = margin_of(next(iter(cells.values())))
            differences[pair] = _difference(first, second).judged(margin)
        images = {
            group: row.images[next(n for n in groups[group] if n in row.cells)]
            for group in cells
            if row.images
        }
        grouped.append(
            replace(
                row, cells=cells, differences=adjusted(differences), images=images, missing={}
            )
        )
    return grouped


def _mean(answers: Sequence[Answer]) -> Answer:
    values = np.array([answer.value for answer in answers])
    count = len(values)
    low, high = nan, nan
    if count > 1:
        low, high = t_interval(values.mean(), values.std(ddof=1) / count**0.5, count)
    readings = Counter(answer.reading for answer in answers)
    ((reading, number),) = readings.most_common(1)
    if reading and number < count:
        reading = f"{reading} ({number} of {count} {SEEDS})"
    return replace(
        answers[0],
        value=float(values.mean()),
        low=low,
        high=high,
        over=SEEDS,
        missing="" if count > 1 else "a single seed",
        reading=reading,
        selected=1,
        average="arithmetic",
        by_unit=values,
    )


def _difference(first: np.ndarray, second: np.ndarray) -> Difference:
    value = float(second.mean() - first.mean())
    if min(len(first), len(second)) < 2:
        return Difference(value, nan, nan, over=SEEDS, missing="a single seed")
    if len(first) == len(second):
        paired, count = second - first, len(first)
        error = float(paired.std(ddof=1)) / count**0.5
    else:
        squares = [of.var(ddof=1) / len(of) for of in (first, second)]
        error = float(sum(squares) ** 0.5)
        freedoms = (
            s**2 / (len(of) - 1) for s, of in zip(squares, (first, second), strict=True)
        )
        total = sum(freedoms)
        count = int(sum(squares) ** 2 / total) + 1 if total else len(first)
    low, high = t_interval(value, error, count)
    return Difference(value, low, high, over=SEEDS, units=count)
