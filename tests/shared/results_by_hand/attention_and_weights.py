"""Results of attention and of weights, written by hand."""

import numpy as np

from results_by_hand.base import PROVENANCE, complete, within
from visprism.results import (
    AttentionStatistics,
    FilterComponents,
    PositionalSimilarity,
    QueryWeights,
    Rollout,
    ScoresByOffset,
)


def patch_filters():
    channel, row, column = np.indices((3, 2, 4)).reshape(3, -1)
    return FilterComponents(
        component=np.repeat(np.arange(1, 10), 24),
        share=np.repeat(np.arange(9, 0, -1) / 45, 24),
        channel=np.tile(channel, 9),
        row=np.tile(row, 9),
        column=np.tile(column, 9),
        value=np.tile(np.linspace(-1, 1, 24), 9) / np.repeat(np.arange(1, 10), 24),
        parameter="stem.weight",
        kernels=16,
        provenance=PROVENANCE,
    )


def relative_scores():
    head, dy, dx = np.indices((5, 3, 5)).reshape(3, -1)
    weight = np.where(dy * 5 + dx == 3 * head, 0.79, 0.015)
    return ScoresByOffset(
        head=head + 1,
        dy=dy - 1,
        dx=dx - 2,
        score=np.log(weight),
        weight=weight,
        provenance=PROVENANCE,
    )


def positional_similarity():
    row, column, other_row, other_column = np.indices((8, 3, 8, 3)).reshape(4, -1)
    distance = abs(row - other_row) + 2 * abs(column - other_column)
    return PositionalSimilarity(
        row=row,
        column=column,
        other_row=other_row,
        other_column=other_column,
        cosine=1 - distance / 8,
        parameter="positions",
        provenance=PROVENANCE,
    )


def attention_statistics():
    statistics = {
        name: np.array([40.0, 90.0, 60.0, 70.0]) / scale
        for name, scale in (
            ("distance", 1), ("entropy", 20), ("nmi", 100), ("prefix_share", 1000),
            ("redundancy", 100),
        )
    }  # fmt: skip
    return complete(
        AttentionStatistics,
        block=np.array(["attn", "attn", "attn#2", "attn#2"]),
        stage=np.ones(4, dtype=int),
        depth=np.array([0.75, 0.75, 1.0, 1.0]),
        head=np.array([1, 2, 1, 2]),
        keys=np.full(4, 17),
        **{name: within(values, values / 10) for name, values in statistics.items()},
    )


def attention_map():
    head, row, column = np.indices((2, 3, 4)).reshape(3, -1)
    return QueryWeights(
        block=np.repeat(["attn", "attn#2"], 24),
        head=np.tile(head + 1, 2),
        row=np.tile(row, 2),
        column=np.tile(column, 2),
        weight=np.tile(np.linspace(0, 1, 24), 2),
        query="mean",
        provenance=PROVENANCE,
    )


def rollout():
    row, column = np.indices((3, 4)).reshape(2, -1)
    return Rollout(
        row=row, column=column, weight=np.linspace(0, 1, 12), method="gradient",
        readout="class token", provenance=PROVENANCE,
    )  # fmt: skip
