"""Predictions: the logits of a data set with its targets.

One pass of the model serves every metric: `visprism.passes.outcomes` reads the logits
once and stores a few numbers per image.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.tasks import CLASSIFICATION, Task

_SUM = 1e-2  # tolerance of the sum of probabilities, which half precision needs


@dataclass(frozen=True)
class Predictions:
    """Logits and targets of a data set. Logits are the input of a softmax."""

    logits: Float[Tensor, "n k"] = field(repr=False)
    targets: Int64[Tensor, " n"] = field(repr=False)
    provenance: Provenance = field(default_factory=Provenance)
    task: Task = CLASSIFICATION

    def __post_init__(self) -> None:
        for name, value in (("logits", self.logits), ("targets", self.targets)):
            if not isinstance(value, Tensor):
                raise InputError(
                    f"{name} must be a tensor, got {type(value).__name__}. Use "
                    "torch.from_numpy or torch.tensor."
                )
            object.__setattr__(self, name, value.detach().cpu())
        if not self.task.single_class:
            return
        _check_shapes(self.logits, self.targets)
        _check_targets(self.targets, self.num_classes)
        check_logits(self.logits)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.targets)

    @property
    def num_classes(self) -> int:
        """Number of classes, including classes without images."""
        return self.logits.shape[1]

    def subset(self, positions: Int64[Tensor, " m"]) -> "Predictions":
        """The predictions of the images at `positions`, in that order."""
        return replace(self, logits=self.logits[positions], targets=self.targets[positions])

    def outcomes(self) -> Float[Tensor, "n 2"]:
        """The outcome and the loss of each image by the task, in float64.

        For maps, `logits` hold the two already.
        """
        if self.task.dense:
            return self.logits
        logits = self.logits.float().double()
        parts = (f(logits, self.targets) for f in (self.task.outcome, self.task.loss))
        return torch.stack([part.double() for part in parts], dim=1)


def _check_shapes(logits: Tensor, targets: Tensor) -> None:
    if logits.ndim != 2 or not logits.is_floating_point() or 0 in logits.shape:
        raise InputError(
            "logits must be floating-point of shape (images, classes), got "
            f"{_described(logits)}"
        )
    integer = not targets.is_floating_point() and not targets.is_complex()
    if targets.shape != logits.shape[:1] or not integer:
        raise InputError(
            f"targets must be one class index for each of {len(logits)} images, got "
            f"{_described(targets)}"
        )


def _check_targets(targets: Tensor, classes: int) -> None:
    low, high = targets.min().item(), targets.max().item()
    if low == -1:
        raise InputError(
            f"targets must be labels, got {int((targets == -1).sum())} of {len(targets)} "
            "images without one (-1). Use labeled data."
        )
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise InputError(
            f"targets must be between 0 and {classes - 1} (the model has {classes} classes), "
            f"got {wrong}. Use data with the classes that the model was trained on."
        )


def check_logits(rows: Float[Tensor, "n k"]) -> None:
    """Check that the largest logits are finite, and that logits are no probabilities."""
    highest = rows.amax(1)  # NaN if one of the row is
    if not torch.isfinite(highest).all():
        number = int((~torch.isfinite(highest)).sum())
        raise InputError(
            "logits must be finite, or negative infinity for some classes, got NaN or "
            f"infinity as the largest logit of {number} of {len(rows)} images. Check the "
            "weights, the preprocessing and the precision."
        )
    sums = rows[rows.amin(1) >= 0].float().sum(1)
    ones, hundreds = (int(((sums - t).abs() < t * _SUM).sum()) for t in (1, 100))
    if 2 * ones > len(rows):
        reason = f"between 0 and 1 that sum to 1 in {ones} of {len(rows)} images"
    elif 2 * hundreds > len(rows):
        reason = f"of at least 0 that sum to 100 in {hundreds} of {len(rows)} images"
    else:
        return
    raise InputError(
        f"logits must not be probabilities, got values {reason}. Use the output before the "
        "softmax, or the logarithm of the probabilities."
    )


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
