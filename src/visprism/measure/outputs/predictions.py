"""Predictions: the logits of a data set with its targets; all that outputs can tell.

One pass of the model serves every metric: `visprism.measure.outputs.outcomes` reads the logits
once and keeps a few numbers of each image.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance

_ROWS = 4096  # that are looked at together
# Rows of probabilities in half precision sum to 1 only so far.
_SUM = 1e-2


@dataclass(frozen=True)
class Predictions:
    """Logits and targets of a data set; several passes or members are a stack of logits.

    Logits are what a softmax is applied to. Of several passes the probabilities are averaged.

    Raises:
        InputError: if these are no tensors, shapes do not fit, logits are NaN or infinite, or
            are probabilities for most images, or targets are missing or no class.
    """

    logits: Float[Tensor, "n k"] | Float[Tensor, "s n k"] = field(repr=False)
    targets: Int64[Tensor, " n"] = field(repr=False)
    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        check_tensors(logits=self.logits, targets=self.targets)
        check_shapes(self.logits, self.targets)
        _check_targets(self.targets, self.num_classes)
        _check_logits(self.members)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.targets)

    @property
    def members(self) -> Float[Tensor, "s n k"]:
        """The logits as a stack, of one where there is one pass."""
        return self.logits if self.logits.ndim == 3 else self.logits[None]

    @property
    def num_classes(self) -> int:
        """Number of classes, those that no image shows included."""
        return self.logits.shape[-1]

    def subset(self, positions: Int64[Tensor, " m"]) -> "Predictions":
        """The predictions of the images at `positions`, in that order."""
        logits = self.logits[..., positions, :]
        return Predictions(logits, self.targets[positions], self.provenance)


def check_tensors(**given: object) -> None:
    """Whether these are tensors.

    Raises:
        InputError: if not.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"{name} are of type {type(value).__name__}; wants tensors, as "
                "torch.from_numpy and torch.tensor give them"
            )


def check_shapes(logits: Tensor, targets: Tensor) -> None:
    """Whether these can be logits and targets.

    Raises:
        InputError: if not.
    """
    if logits.ndim not in (2, 3) or not logits.is_floating_point() or 0 in logits.shape:
        raise InputError(
            "logits are floating-point numbers (images, classes), or (passes, images, classes)"
            f", at least one of each; got {_described(logits)}"
        )
    integer = not targets.is_floating_point() and not targets.is_complex()
    if targets.shape != logits.shape[-2:-1] or not integer:
        raise InputError(
            f"targets are one class index for each of {logits.shape[-2]} images; got "
            f"{_described(targets)}"
        )


def _check_targets(targets: Tensor, classes: int) -> None:
    low, high = targets.min().item(), targets.max().item()
    if low == -1:
        raise InputError(
            f"{int((targets == -1).sum())} of {len(targets)} images have no label (target -1), "
            "which metrics need; take labeled data, as folder:DIR with a folder per class"
        )
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise InputError(
            f"target {wrong} is none of the model's {classes} classes (0 to {classes - 1}); "
            "take data with the classes that the model was trained on, in the same order"
        )


def _check_logits(members: Float[Tensor, "s n k"]) -> None:
    """Whether a softmax of the logits is defined, and whether it has not been taken already."""
    rows = members.flatten(0, 1)
    seen = torch.zeros(2, dtype=torch.long)  # rows that sum to 1, or to 100
    for block in rows.split(_ROWS):
        highest = block.amax(1)  # NaN where one is
        if not torch.isfinite(highest).all():
            number = int((~torch.isfinite(highest)).sum())
            raise InputError(
                f"{number} of {len(block)} rows of logits hold NaN or +infinity, or nothing "
                "else than -infinity; check the weights, the preprocessing and the precision"
            )
        seen += _like_probabilities(block, highest)
    ones, hundreds = seen.tolist()
    if 2 * ones > len(rows):
        found = f"of {ones} of {len(rows)} images lie in 0 ... 1 and sum to 1"
    elif 2 * hundreds > len(rows):
        found = f"of {hundreds} of {len(rows)} images are not below 0 and sum to 100"
    else:
        return
    raise InputError(
        f"the logits {found}: they are probabilities; give the model's output before its "
        "softmax, or the probabilities' logarithm"
    )


def _like_probabilities(
    block: Float[Tensor, "b k"], highest: Float[Tensor, " b"]
) -> Int64[Tensor, " 2"]:
    """How many rows sum to 1, and how many to 100."""
    none = torch.zeros(2, dtype=torch.long)
    if not (highest <= 100 * (1 + _SUM)).any():
        return none
    low = block.amin(1) >= 0
    if not low.any():  # spares the sums below for nearly all logits
        return none
    sums = block.float().sum(1)
    one, hundred = (low & ((sums - total).abs() < total * _SUM) for total in (1, 100))
    return torch.stack([one.sum(), hundred.sum()]).cpu()


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
