"""Paired comparison: what changes when the same images are seen under another condition.

Differences are taken image by image, so that what makes an image hard cancels; sums and counts
are kept and divided once.
"""

from math import sqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.processes import add_up

# What is summed for each condition: right and NLL, their differences and squared differences.
_SUMS = 6


class Paired:
    """Accuracy and NLL of a reference and of some conditions on the same images.

    For each batch `reference` comes first, then `add` for each condition.
    """

    def __init__(self, conditions: int) -> None:
        self._sums = torch.zeros(conditions, _SUMS, dtype=torch.float64)
        self._whole = torch.zeros(3, dtype=torch.float64)  # images, right, NLL
        self._right = self._loss = torch.empty(0)
        self._targets = torch.empty(0, dtype=torch.long)

    @property
    def images(self) -> int:
        """How many were seen."""
        return int(self._whole[0])

    @property
    def accuracy(self) -> float:
        """Of the reference."""
        return float(self._whole[1] / self._whole[0])

    @property
    def nll(self) -> float:
        """Of the reference."""
        return float(self._whole[2] / self._whole[0])

    def reference(self, logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> None:
        """The logits of a batch as they are without any condition."""
        self._targets = targets
        self._right, self._loss = _outcome(logits, targets)
        new = [len(targets), self._right.sum(), self._loss.sum()]
        self._whole += torch.tensor(new, dtype=torch.float64)

    def add(self, condition: int, logits: Float[Tensor, "b k"]) -> None:
        """The logits of the same batch under a condition."""
        right, loss = _outcome(logits, self._targets)
        fall, rise = self._right - right, loss - self._loss
        parts = (right, fall, fall.square(), loss, rise, rise.square())
        self._sums[condition] += torch.stack([part.sum() for part in parts])

    def gathered(self) -> "Paired":
        """The same for the images of all processes.

        Raises:
            InputError: if there are none.
        """
        whole = Paired(len(self._sums))
        whole._sums, whole._whole = add_up(self._sums), add_up(self._whole)
        if not whole.images:
            raise InputError("no images were seen; is the data empty?")
        return whole

    def columns(self) -> dict[str, Any]:
        """For each condition accuracy and NLL, and what changed, with standard errors."""
        n = self.images
        right, fall, fall_2, loss, rise, rise_2 = (self._sums / n).T.numpy()
        return {
            "accuracy": right,
            "drop": fall,
            "drop_error": _error(fall, fall_2, n),
            "nll": loss,
            "nll_rise": rise,
            "nll_rise_error": _error(rise, rise_2, n),
        }


def _outcome(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Whether each image is right, and its NLL."""
    logits = logits.double()
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (logits.argmax(1) == targets).double(), loss


def _error(mean: np.ndarray, square: np.ndarray, n: int) -> np.ndarray:
    """Standard error of a mean; NaN of a single image."""
    if n < 2:
        return np.full_like(mean, np.nan)
    return np.sqrt((square - mean**2).clip(min=0)) / sqrt(n - 1)
