"""Alarms: conditions of a training that a monitor looks for after each measurement.

Each code has a title, a meaning and a heading in docs/findings.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from visprism.analyses.attention.attention import AttentionStatistics
from visprism.analyses.features.singular_values import EffectiveRanks
from visprism.analyses.features.token_norms import OutlierTokens
from visprism.analyses.features.variance import Variances
from visprism.estimates.findings import Finding
from visprism.estimates.text import some_of
from visprism.loss.training_curvature import CurvatureDuringTraining
from visprism.study.record import StudyRecord
from visprism.table.result import Result

R = TypeVar("R", bound=Result)

ENTROPY = 0.1  # of log(keys), below which attention has collapsed,
HEADS = 0.5  # in more than this fraction of heads
RANK = 0.5  # of the largest effective rank of a block so far
DEAD = 0.2  # fraction of channels
OUTLIERS = 0.01  # fraction of tokens of a block that had none at the first measurement
UNSTABLE = 10  # measurements in a row
UNCHANGED = 1e-6  # relative change of features that is rounding


def alarms_of(studies: Sequence[StudyRecord]) -> list[Finding]:
    """The alarms at the last of the studies of one training, in order of their steps."""
    return [
        Finding(text, code) for code, condition in ALARMS.items() for text in condition(studies)
    ]


def _of_type(studies: Sequence[StudyRecord], kind: type[R]) -> list[R]:
    """The results of a type, one for each study; none if the last one has none."""
    found = [[r for e in s.entries for r in e.results if isinstance(r, kind)] for s in studies]
    return [results[0] for results in found if results] if found and found[-1] else []


def _entropy(studies: Sequence[StudyRecord]) -> Iterator[str]:
    for now in _of_type(studies, AttentionStatistics)[-1:]:
        relative = np.asarray(now.entropy) / np.log(np.maximum(now.keys, 2))
        heads = float((relative < ENTROPY).mean())
        if heads > HEADS:
            yield (
                f"the entropy of attention is below {ENTROPY:.0%} of its maximum in "
                f"{heads:.0%} of the heads"
            )


def _rank(studies: Sequence[StudyRecord]) -> Iterator[str]:
    results = _of_type(studies, EffectiveRanks)
    if len(results) < 2:
        return
    *before, now = results
    largest = np.max([result.token_rank for result in before], axis=0)
    ratio = now.token_rank / largest
    fallen = np.flatnonzero(ratio < RANK)
    if 2 * len(fallen) > len(now):
        least = fallen[np.argmin(ratio[fallen])]
        yield (
            f"the effective rank of the tokens is below half of its earlier value in "
            f"{len(fallen)} of {len(now)} blocks; {now.block[least]}: "
            f"{now.token_rank[least]:.3g}, {largest[least]:.3g} before"
        )


def _dead(studies: Sequence[StudyRecord]) -> Iterator[str]:
    if studies[-1].header.get("young_statistics"):  # with which channels may seem dead
        return
    for now in _of_type(studies, Variances)[-1:]:
        rows = np.flatnonzero(now.dead_channels > DEAD)
        if len(rows):
            parts = [f"{now.block[i]} {now.dead_channels[i]:.0%}" for i in rows]
            yield f"more than {DEAD:.0%} of the channels are 0 everywhere: {some_of(parts)}"


def _outliers(studies: Sequence[StudyRecord]) -> Iterator[str]:
    """Only for networks with attention: positions of a CNN after a ReLU differ that much."""
    results = _of_type(studies, OutlierTokens)
    if len(results) > 2 and any("attention" in kind for kind in results[-1].kind):
        first, before, now = (np.asarray(results[i].share) for i in (0, -2, -1))
        rows = np.flatnonzero((first == 0) & (before > OUTLIERS) & (now > OUTLIERS))
        if len(rows):
            parts = [f"{results[-1].block[i]} {now[i]:.2%}" for i in rows]
            yield f"outlier tokens appeared: {some_of(parts)} of the tokens"


def _unstable(studies: Sequence[StudyRecord]) -> Iterator[str]:
    results = _of_type(studies, CurvatureDuringTraining)[-UNSTABLE:]
    above = [bool((r.eigenvalue > r.threshold).any()) for r in results]
    if len(above) == UNSTABLE and all(above):
        now = results[-1]
        row = int(np.nanargmax(now.eigenvalue / now.threshold))
        yield (
            f"the leading eigenvalue was above the threshold of stability in {UNSTABLE} "
            f"measurements in a row; now {now.eigenvalue[row]:.3g}, threshold "
            f"{now.threshold[row]:.3g}"
        )


def _idle(studies: Sequence[StudyRecord]) -> Iterator[str]:
    last = _of_type(studies, Variances)[-2:]
    if len(last) == 2:
        rows = np.flatnonzero(np.all([r.feature_change < UNCHANGED for r in last], axis=0))
        if len(rows):
            yield (
                f"{len(rows)} blocks changed nothing at the last two measurements: "
                f"{some_of(last[-1].block[rows].tolist())}"
            )


ALARMS: Mapping[str, Callable[[Sequence[StudyRecord]], Iterator[str]]] = {
    "VP201": _entropy,
    "VP202": _rank,
    "VP203": _dead,
    "VP204": _outliers,
    "VP205": _unstable,
    "VP206": _idle,
}
