"""What models cost: rows of the table with their speed on one machine and their size."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import exp, nan
from statistics import median

import numpy as np

from visprism.anatomy.blocks.anatomy import Costs, short
from visprism.core.statistics import t_interval
from visprism.estimates.answers import Answer
from visprism.estimates.questions import (
    LATENCY,
    MACS,
    MEMORY,
    PARAMETERS,
    ROUNDS,
    THROUGHPUT,
    Question,
)
from visprism.report.rows import Difference, Pair, Row, adjusted

Rounds = Mapping[str, Mapping[str, Sequence[float]]]  # by model and quantity
BUSY = "busy machine"
MARGIN = 0.05  # of a relative difference that does not matter
_SPREAD = 0.2  # of the rounds, relative to their median, from which the machine is busy
_RUNNING = 0.8  # processor's time over elapsed time, below which it is busy


def cost_rows(speed: Rounds, sizes: Mapping[str, Costs]) -> list[Row]:
    """Latency, throughput, memory, parameters and arithmetic of the models.

    A latency is the median over rounds with their range. Two models are compared by the mean
    over rounds of the log ratio, with Student's interval, unless the machine was busy: the
    rounds of a model differ by more than 20%, or the process had the processor for less than
    80% of the time.

    Args:
        speed: of each model, as `visprism.study.speed` measures it.
        sizes: of each model.
    """
    busy = any(map(is_busy, speed.values()))
    first = next(iter(speed.values()), {})
    number = next(iter(first.get("threads", ())), 0)
    machine = f", {number:.0f} thread{'' if number == 1 else 's'}" if number else ""
    batch = f"{next(iter(first.get('batch', ())), 1):.0f}"
    timed = [
        (LATENCY, f"latency{machine}", "latency", "ms", 1e3),
        (THROUGHPUT, f"throughput, batches of {batch}", "throughput", "images/s", 1),
        (MEMORY, f"memory, batches of {batch}", "memory", "MiB", 2.0**-20),
    ]
    rows = []
    for question, quantity, name, unit, scale in timed:
        rounds = {m: scale * np.array(of[name]) for m, of in speed.items() if of.get(name)}
        if rounds:
            row = _timed_row(question, quantity, unit, rounds, busy=busy)
            rows.append(replace(row, differences=_compared(rounds, speed, busy=busy)))
    counts: list[tuple[Question, str, dict[str, float]]] = [
        (PARAMETERS, "parameters", {m: c.distinct_parameters for m, c in sizes.items()}),
        (MACS, "MACs per image", {m: float(c.macs.sum()) for m, c in sizes.items()}),
    ]
    for question, quantity, values in counts:
        answers = {
            m: Answer(question.text, quantity, value, reading=short(float(f"{value:.3g}")))
            for m, value in values.items()
        }
        rows += [Row(question.text, quantity, "", answers)] * bool(answers)
    return rows


def is_busy(speed: Mapping[str, Sequence[float]]) -> bool:
    """Whether other work slowed the rounds of a model."""
    spreads = [_spread(speed[name]) for name in ("latency", "throughput") if speed.get(name)]
    on_cpu = bool(speed.get("threads"))
    stopped = on_cpu and any(share < _RUNNING for share in speed.get("running", ()))
    return stopped or any(spread > _SPREAD for spread in spreads)


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / median(values)


def _timed_row(
    question: Question,
    quantity: str,
    unit: str,
    rounds: Mapping[str, np.ndarray],
    *,
    busy: bool,
) -> Row:
    several = all(len(values) > 1 for values in rounds.values())
    answers = {
        model: Answer(
            question.text,
            f"{quantity}, {BUSY}" if busy else quantity,
            float(np.median(values)),
            *((float(values.min()), float(values.max())) if several else (nan, nan)),
            unit,
            over=ROUNDS if several else "",
            missing="" if several else "measured once",
        )
        for model, values in rounds.items()
    }
    name = next(iter(answers.values())).quantity
    return Row(question.text, name, unit, answers)


def _compared(
    rounds: Mapping[str, np.ndarray], speed: Rounds, *, busy: bool
) -> dict[Pair, Difference]:
    """Ratios of the models that took turns; the rounds of others are not comparable."""
    differences: dict[Pair, Difference] = {}
    for pair in combinations(rounds, 2):
        first, second = (np.log(rounds[model]) for model in pair)
        missing = BUSY if busy else "measured once" if len(first) < 2 else ""
        begun, other = (speed[model].get("begun") for model in pair)
        if begun != other or len(first) != len(second):
            missing, first = "timed in different runs", np.log(np.median(rounds[pair[0]]))
        logs = second - first
        mean, low, high = float(logs.mean()), nan, nan
        if not missing:
            low, high = t_interval(mean, float(logs.std(ddof=1)) / len(logs) ** 0.5, len(logs))
        difference = Difference(
            exp(mean), exp(low), exp(high), "ratio", ROUNDS, missing, units=len(logs)
        )
        differences[pair] = difference.judged(MARGIN)
    return adjusted(differences)
