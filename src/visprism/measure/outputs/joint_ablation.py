"""Ablations together: what several blocks at once cost, beside the sum of what each costs alone.

Source: Veit et al. (2016), Residual networks behave like ensembles of relatively shallow
networks, sec. 4.2.
"""

import numpy as np

from visprism.core.errors import InputError
from visprism.measure.outputs.ablation_result import Ablations
from visprism.results.base import Result, column, result_type, scalar


@result_type("joint-ablations", formerly="LesionsTogether")
class JointAblations(Result):
    """One row for each number of blocks that were taken out at once."""

    number: np.ndarray = column("Blocks", "", "of blocks")
    draws: np.ndarray = column("Draws", "", "how often so many were drawn")
    accuracy: np.ndarray = column("Accuracy", "", "mean over the draws")
    drop: np.ndarray = column("Drop", "", "of the accuracy, mean over the draws")
    drop_least: np.ndarray = column("Least", "", "of the draw that costs least")
    drop_most: np.ndarray = column("Most")
    drop_apart: np.ndarray = column(
        "Sum of single drops",
        "",
        "mean over the draws of the sum of their blocks' drops one by one",
    )
    nll_rise: np.ndarray = column("Rise of NLL", "", "mean over the draws")
    whole_accuracy: float = scalar(
        "Whole accuracy", "", "of the model as it is", default=float("nan")
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        return [
            f"{number} block{'s at once' if number > 1 else ''} cost {drop:.1%} of accuracy "
            f"on average ({least:.1%} to {most:.1%} in {draws} draws), "
            f"one by one {apart:.1%} in sum"
            for number, draws, drop, least, most, apart in zip(
                self.number.tolist(), self.draws.tolist(), self.drop.tolist(),
                self.drop_least.tolist(), self.drop_most.tolist(), self.drop_apart.tolist(),
                strict=True,
            )
        ]  # fmt: skip


def joint_ablations(study: Ablations) -> JointAblations:
    """What several blocks at once cost, from a study in which some were drawn.

    Args:
        study: of `ablation` with `together`.

    Raises:
        InputError: if it has no lesion of several blocks.

    Source: Veit et al. (2016), fig. 5.
    """
    several = study.select(study.removed == "several")
    if not len(several):
        raise InputError(
            "no lesion is of several blocks at once; ask ablation for together=[2, 4]"
        )
    # Of a block that can be lesioned in two ways, the first is what went with others.
    alone = dict(zip(study.single.block[::-1].tolist(), study.single.drop[::-1], strict=True))
    apart = np.array([sum(alone[b] for b in name.split("+")) for name in several.block])
    numbers = np.unique(several.number)
    each = [several.number == n for n in numbers]

    def mean(column: np.ndarray) -> np.ndarray:
        return np.array([column[rows].mean() for rows in each])

    return JointAblations(
        number=numbers,
        draws=np.array([rows.sum() for rows in each]),
        accuracy=mean(several.accuracy),
        drop=mean(several.drop),
        drop_least=np.array([several.drop[rows].min() for rows in each]),
        drop_most=np.array([several.drop[rows].max() for rows in each]),
        drop_apart=mean(apart),
        nll_rise=mean(several.nll_rise),
        whole_accuracy=study.whole_accuracy,
        provenance=study.provenance,
    )
