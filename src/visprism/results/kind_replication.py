"""Replication: mean changes by kind over networks trained with different seeds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from visprism.core.errors import InputError
from visprism.core.statistics import t_quantile
from visprism.results.base import Result, column, result_type
from visprism.results.findings import Finding
from visprism.results.kind_summary import KindSummary

FEWEST_SEEDS = 3


@result_type("kind-replication")
class KindReplication(Result):
    """Mean change by kind, replicated over trained seeds; a row for each kind and quantity."""

    kind: np.ndarray = column("Kind", "", "'conv', 'attention', 'mlp', ...")
    quantity: np.ndarray = column("Quantity", "", "what changes across the blocks")
    seeds: np.ndarray = column("Seeds", "", "number of trained networks")
    negative: np.ndarray = column(
        "Significantly negative", "", "number of networks whose mean change is below 0"
    )
    positive: np.ndarray = column(
        "Significantly positive", "", "number of networks whose mean change is above 0"
    )
    mean: np.ndarray = column("Mean change", "", "mean over networks")
    low: np.ndarray = column("95% interval, low", "", "over networks, by Student's t")
    high: np.ndarray = column("95% interval, high", "", "over networks, by Student's t")

    def findings(self) -> tuple[Finding, ...]:
        """A sentence for each kind and quantity."""
        findings = []
        for i in range(len(self)):
            remark = "" if self.high[i] < 0 or self.low[i] > 0 else ", not significant"
            ends = f" [{self.low[i]:+.3g}, {self.high[i]:+.3g}]"
            if np.isnan(self.low[i]):
                remark, ends = ", no interval", ""
            findings.append(
                Finding(
                    f"{self.kind[i]} blocks, {self.quantity[i]}: mean change "
                    f"{self.mean[i]:+.3g}{ends} over "
                    f"{self.seeds[i]} trained seeds ({self.negative[i]} negative, "
                    f"{self.positive[i]} positive){remark}"
                )
            )
        return tuple(findings)


def replicate_by_kind(summaries: Sequence[KindSummary]) -> KindReplication:
    """Interval of the mean change of each kind over networks trained with different seeds.

    Args:
        summaries: of at least 3 checkpoints of one architecture, each trained with its own
        seed.

    Returns:
        A row for each kind and quantity that every summary has.
    """
    if len(summaries) < FEWEST_SEEDS:
        raise InputError(
            f"summaries must be of at least {FEWEST_SEEDS} trained seeds, got {len(summaries)}"
        )
    tables = [
        {
            (k, q): (m, d)
            for k, q, m, d in zip(s.kind, s.quantity, s.mean, s.directions(), strict=True)
        }
        for s in summaries
    ]
    keys = [key for key in tables[0] if all(key in table for table in tables)]
    means = np.array([[table[key][0] for table in tables] for key in keys]).reshape(
        len(keys), len(tables)
    )
    signs = np.array([[table[key][1] for table in tables] for key in keys]).reshape(means.shape)
    margin = _margin(means)
    return KindReplication(
        kind=np.array([k for k, _ in keys], dtype=str),
        quantity=np.array([q for _, q in keys], dtype=str),
        seeds=np.full(len(keys), len(summaries)),
        negative=(signs < 0).sum(1),
        positive=(signs > 0).sum(1),
        mean=means.mean(1),
        low=means.mean(1) - margin,
        high=means.mean(1) + margin,
        provenance=summaries[0].provenance,
    )


def _margin(values: Float[np.ndarray, "rows seeds"]) -> Float[np.ndarray, "rows"]:
    """Half the width of Student's 95% interval of the mean of each row."""
    seeds = values.shape[1]
    return t_quantile(seeds) * values.std(1, ddof=1) / np.sqrt(seeds)
