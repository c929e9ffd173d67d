"""Paired comparison of conditions: the same images with and without each change.

Differences are taken image by image, so that the difficulty of an image cancels.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.statistics import paired_proportions_interval, standard_error


class Paired:
    """Correctness and NLL of each image without any change and under each condition.

    For each batch `reference` comes first, then `add` for each condition.
    """

    def __init__(self, conditions: int) -> None:
        self._conditions = conditions
        self._rows: list[np.ndarray] = []  # of each batch: index, and pairs (correct, NLL)
        self._targets = torch.empty(0, dtype=torch.long)
        self._classes = 0
        self.rms = np.zeros(conditions)  # root mean square of each change of the pixels

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(len(rows) for rows in self._rows)

    @property
    def classes(self) -> int:
        """Number of classes of the model; 0 without any image in this process."""
        return self._classes

    @property
    def accuracy(self) -> float:
        """Accuracy of the reference."""
        return float(self._values()[:, 0, 0].mean())

    @property
    def nll(self) -> float:
        """Mean NLL of the reference, summed in the order in which `columns` sums conditions."""
        return float(self.losses.mean(0)[0])

    @property
    def indices(self) -> Int64[np.ndarray, " n"]:
        """Index of each image in the data, in ascending order once `gathered`."""
        return np.concatenate(self._rows)[:, 0, 0].astype(np.int64)

    @property
    def correct(self) -> Float[np.ndarray, "n conditions"]:
        """1 where an image is classified correctly, 0 where not; the reference comes first."""
        return self._values()[:, :, 0]

    @property
    def losses(self) -> Float[np.ndarray, "n conditions"]:
        """NLL of each image in nats; the reference comes first."""
        return self._values()[:, :, 1]

    def reference(
        self,
        logits: Float[Tensor, "b k"],
        targets: Int64[Tensor, " b"],
        start: int | None = None,
    ) -> None:
        """Add the logits of a batch without any change.

        Args:
            logits: of the model.
            targets: class indices.
            start: index of the first image in the data; None: the batch follows the last one.
        """
        self._targets, self._classes = targets, logits.shape[1]
        start = self.images if start is None else start
        rows = np.full((len(targets), 2 + self._conditions, 2), np.nan)
        rows[:, 0, 0] = np.arange(start, start + len(targets))
        rows[:, 1] = _outcome(logits, targets)
        self._rows.append(rows)

    def add(self, condition: int, logits: Float[Tensor, "b k"]) -> None:
        """Add the logits of the same batch under a condition."""
        self._rows[-1][:, 2 + condition] = _outcome(logits, self._targets)

    def gathered(self) -> "Paired":
        """The same for the images of all processes, in the order of the data."""
        rows = [row for rows in gather(self._rows) for row in rows]
        classes = max(gather(self._classes))
        if not rows:
            raise InputError("data must hold at least one image, got none")
        values = np.concatenate(rows)
        united = Paired(self._conditions)
        united._classes = classes
        united._rows = [values[np.argsort(values[:, 0, 0], kind="stable")]]
        return united

    def columns(self) -> dict[str, Any]:
        """For each condition accuracy and NLL, and their changes with standard errors."""
        correct, losses = self.correct, self.losses
        fall = correct[:, :1] - correct[:, 1:]
        rise = losses[:, 1:] - losses[:, :1]
        return {
            "accuracy": correct[:, 1:].mean(0),
            "drop": fall.mean(0),
            "drop_error": _error(fall),
            "nll": losses[:, 1:].mean(0),
            "nll_rise": rise.mean(0),
            "nll_rise_error": _error(rise),
        }

    def drop_intervals(self) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
        """Both ends of the 95% interval of the accuracy drop under each condition.

        Source: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
        binomial proportions based on paired data.
        """
        before, after = self.correct[:, :1], self.correct[:, 1:]
        lost, gained = (before > after).sum(0), (before < after).sum(0)
        ends = [
            paired_proportions_interval(int(a), int(b), self.images)
            for a, b in zip(lost, gained, strict=True)
        ]
        low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
        return low, high

    def _values(self) -> Float[np.ndarray, "n conditions 2"]:
        return np.concatenate(self._rows)[:, 1:]


def _outcome(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]
) -> Float[np.ndarray, "b 2"]:
    """Whether each image is classified correctly, and its NLL."""
    logits = logits.double()
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return torch.stack([(logits.argmax(1) == targets).double(), loss], dim=1).numpy()


def _error(values: Float[np.ndarray, "n c"]) -> Float[np.ndarray, " c"]:
    """Standard error of the mean over images; NaN for a single image."""
    total, squares = values.sum(0), np.square(values).sum(0)
    return standard_error(total, squares, np.full(len(total), float(len(values))))
