"""The table of a study: one row per question, a cell per model, and the paired difference."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import exp, isnan, nan
from types import MappingProxyType
from typing import TypeVar

from visprism.estimates.answers import Answer
from visprism.estimates.questions import place_of
from visprism.results.differences import Differences, paired_differences
from visprism.results.per_image import PerImage
from visprism.study.rows import ALL_PAIRS, Difference, Pair, Row
from visprism.table.result import Result

Model = TypeVar("Model")


def comparison_rows(
    results: Mapping[str, Sequence[Result]],
    compared: Mapping[Pair, Sequence[Result]] = MappingProxyType({}),
) -> list[Row]:
    """A row for each question and quantity that any model answers, in the order of questions.

    The rows of a question are in the order of results.

    Args:
        results: of each model.
        compared: of two models together; their `Differences` join those of the rows, and their
            answers have rows after those of the models.
    """
    answered = {
        name: {
            (a.question, a.quantity): (a, r.provenance)
            for r in rs
            for a in r.answers()
            if not isnan(a.value)
        }
        for name, rs in results.items()
    }
    answers = {name: {k: a for k, (a, _) in d.items()} for name, d in answered.items()}
    origins = {name: {k: p for k, (_, p) in d.items()} for name, d in answered.items()}
    keys = dict.fromkeys(key for by_key in answers.values() for key in by_key)
    differences = {
        (first, second): _differences(
            results[first], results[second], compared.get((first, second), ())
        )
        for first, second in pairs_of(tuple(results))
    }
    rows = [
        Row(
            question=key[0],
            quantity=key[1],
            unit=next(iter(cells.values())).unit,
            cells=cells,
            differences={
                pair: _comparable(
                    next(iter(cells.values())),
                    by_quantity[key[1]],
                    [origins[name][key].image_shape for name in pair if key in origins[name]],
                ).judged(*map(cells.get, pair))
                for pair, by_quantity in differences.items()
                if key[1] in by_quantity
            },
            images={name: origins[name][key].images for name in cells},
        )
        for key in keys
        for cells in [{name: a[key] for name, a in answers.items() if key in a}]
    ]
    rows = [*_agreed(rows), *_joint_rows(compared)]
    return sorted(rows, key=lambda row: place_of(row.question))


def _agreed(rows: Sequence[Row]) -> list[Row]:
    """Rows of one question share the verdict about two models, undecided if they disagree."""
    verdicts: dict[tuple[str, Pair], set[str]] = {}
    for row in rows:
        for pair, difference in row.differences.items():
            if difference.verdict:
                verdicts.setdefault((row.question, pair), set()).add(difference.verdict)
    return [
        replace(
            row,
            differences={
                pair: replace(difference, verdict="undecided")
                if len(verdicts.get((row.question, pair), ())) > 1
                else difference
                for pair, difference in row.differences.items()
            },
        )
        for row in rows
    ]


def _joint_rows(compared: Mapping[Pair, Sequence[Result]]) -> list[Row]:
    """A row for each question that results of two models together answer."""
    answered = {
        pair: {
            (a.question, a.quantity): (a, r.provenance) for r in results for a in r.answers()
        }
        for pair, results in compared.items()
    }
    answers = {pair: {k: a for k, (a, _) in d.items()} for pair, d in answered.items()}
    keys = dict.fromkeys(key for by_key in answers.values() for key in by_key)
    return [
        Row(
            question=key[0],
            quantity=key[1],
            unit=next(by_key[key].unit for by_key in answers.values() if key in by_key),
            cells={},
            differences={
                pair: Difference(a.value, a.low, a.high, "joint", a.over, a.missing, a.reading)
                for pair, by_key in answers.items()
                if key in by_key
                for a in [by_key[key]]
            },
            images={
                name: by_key[key][1].images
                for pair, by_key in answered.items()
                if key in by_key
                for name in pair
            },
        )
        for key in keys
    ]


def differences_of(first: Sequence[Result], second: Sequence[Result]) -> list[Differences]:
    """Paired differences of two models in everything that both have by image."""
    pairs = [
        (a, b)
        for a in first
        if isinstance(a, PerImage)
        for b in second
        if isinstance(b, PerImage) and set(a.quantities) & set(b.quantities)
    ]
    return [paired_differences(a, b) for a, b in pairs]


def pairs_of(models: Sequence[Model]) -> list[tuple[Model, Model]]:
    """The pairs that are compared: all of up to 3 models, beyond that each with the first."""
    if len(models) <= ALL_PAIRS:
        return list(combinations(models, 2))
    return [(models[0], other) for other in models[1:]]


def _comparable(
    answer: Answer, difference: Difference, shapes: Sequence[Sequence[int]]
) -> Difference:
    """The difference as it is read; undefined for pixels of images of different sizes."""
    sizes = {tuple(shape[-2:]) for shape in shapes}
    if answer.in_pixels and len(sizes) > 1:
        text = " and ".join("x".join(map(str, size)) for size in sorted(sizes))
        reason = f"it depends on the size of the images, {text} pixels"
        return Difference(nan, nan, nan, over=difference.over, missing=reason)
    return _in_form_of(answer, difference)


def _in_form_of(answer: Answer, difference: Difference) -> Difference:
    """The paired difference as it is read beside the answers; a ratio where it is of logs."""
    if answer.average == "arithmetic":
        return difference
    value, low, high = map(exp, (difference.value, difference.low, difference.high))
    return replace(difference, value=value, low=low, high=high, form="ratio")


def _differences(
    first: Sequence[Result], second: Sequence[Result], compared: Sequence[Result]
) -> dict[str, Difference]:
    """Differences of two models by the name of the quantity."""
    tables = [*differences_of(first, second), *compared]
    return {
        str(name): Difference(
            float(value), float(low), float(high), over=table.over, missing=str(missing)
        )
        for table in tables
        if isinstance(table, Differences)
        for name, value, low, high, missing in zip(
            table.quantity,
            table.difference,
            table.low,
            table.high,
            table.missing,
            strict=True,
        )
    }
