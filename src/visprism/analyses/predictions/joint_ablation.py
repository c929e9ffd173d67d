"""Joint ablation: several blocks ablated together, beside the sum of their single drops."""

from collections.abc import Callable
from math import nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.core.errors import InputError
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, tip
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text
from visprism.table.result import Result, column, result_type, scalar


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
        "Baseline accuracy", "", "accuracy of the model without ablation", default=nan
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


def joint_ablations(several: Any, single: Any) -> JointAblations:
    """Rows of `Ablations` of several blocks, by their number, and those of single blocks.

    Source: Veit et al. (2016), Residual networks behave like ensembles of relatively shallow
    networks, fig. 5.
    """
    if not len(several):
        raise InputError(
            "ablations must include some of several blocks, got none. Pass joint=(2, 4) to "
            "ablation."
        )
    drops = dict(zip(single.block.tolist(), single.drop.tolist(), strict=True))
    sums = np.array([sum(drops[b] for b in name.split("+")) for name in several.block])
    numbers, draws = np.unique(several.num_blocks, return_counts=True)

    def over(reduce: Callable[..., Any], values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        return np.array([reduce(values[several.num_blocks == n]) for n in numbers])

    return JointAblations(
        num_blocks=numbers,
        draws=draws,
        accuracy=over(np.mean, several.accuracy),
        drop=over(np.mean, several.drop),
        drop_min=over(np.min, several.drop),
        drop_max=over(np.max, several.drop),
        sum_of_drops=over(np.mean, sums),
        nll_rise=over(np.mean, several.nll_rise),
        baseline_accuracy=several.baseline_accuracy,
        provenance=several.provenance,
    )


@figure(width=2.7, height=2.2)
def _(result: JointAblations, ax: Axes) -> Axes:
    """Mean and range over draws of the joint drop; dashed, the sum of the single drops."""
    ax.axhline(0, color=FAINT, linewidth=0.6)
    ax.axhline(result.baseline_accuracy, color=FAINT, linewidth=0.8, linestyle=(0, (1, 1.5)))
    infos = result.infos()
    ax.plot(
        result.num_blocks,
        result.sum_of_drops,
        color=FAINT,
        linewidth=1.0,
        linestyle=(0, (4, 2)),
        label=infos["sum_of_drops"].label,
    )
    ax.vlines(result.num_blocks, result.drop_min, result.drop_max, color=INK, linewidth=0.9)
    ax.plot(result.num_blocks, result.drop, color=INK, linewidth=1.0, label="Joint ablation")
    for number, draws, drop in zip(result.num_blocks, result.draws, result.drop, strict=True):
        ax.plot(
            number,
            drop,
            marker="o",
            markersize=3.6,
            color=INK,
            gid=tip(f"{number} blocks · {draws} draws · {drop:.1%}"),
        )
    ax.set_xticks(result.num_blocks)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlabel="Blocks ablated (dotted: baseline accuracy)", ylabel=infos["drop"].heading)
    ax.legend(fontsize=6, handlelength=1.8)
    return ax
