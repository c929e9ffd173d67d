"""Outcomes: class, confidence and losses of each image, in one pass over the logits.

Every metric follows from these numbers, so the logits are read once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.passes.predictions import Predictions
from visprism.table.result import Result, column, result_type, scalar

_CACHED = 262_144  # logits of a block: a megabyte, which stays in the cache of a core
_TOP = 5


@result_type("outcomes")
class Outcomes(Result):
    """Class, confidence and losses of the prediction of each image; one row per image."""

    target: np.ndarray = column("Target", "", "class of the image")
    predicted: np.ndarray = column(
        "Prediction", "", "class with the highest probability; the first of equal ones"
    )
    correct: np.ndarray = column("Correct", "", "whether the prediction is the target")
    top5: np.ndarray = column(
        "Correct in top 5", "", "whether the target is among the five most probable classes"
    )
    confidence: np.ndarray = column("Confidence", "", "probability of the predicted class")
    nll: np.ndarray = column("NLL", "nats", "-log probability of the target")
    brier: np.ndarray = column(
        "Brier score", "", "sum over classes of (probability - one-hot target)^2"
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)
    passes: int = scalar(
        "Passes", "", "number of passes or models whose probabilities are averaged", default=1
    )


def outcomes_of(predictions: Predictions | Outcomes) -> Outcomes:
    """The outcomes of predictions, or the same outcomes."""
    return predictions if isinstance(predictions, Outcomes) else outcomes(predictions)


def outcomes(predictions: Predictions) -> Outcomes:
    """Class, confidence, NLL and Brier score of each image.

    The NLL comes from log-sum-exp and is finite for all finite logits: a softmax whose
    logarithm is taken underflows at differences of 104 or more.

    Costs about five reads of the logits, all but one from cache; memory is one block.
    """
    members, target = predictions.members, predictions.targets
    passes, images, classes = members.shape
    columns = _Columns(
        best=torch.empty(passes, images, dtype=torch.long),
        highest=torch.empty(passes, images, dtype=torch.float32),
        predicted=torch.empty(images, dtype=torch.long),
        confidence=torch.empty(images, dtype=torch.float32),
        norm=torch.empty(images, dtype=torch.float32),
        above=torch.empty(images, dtype=torch.float32),
        not_below=torch.empty(images, dtype=torch.float32),
        equal_before=torch.zeros(images, dtype=torch.float32),
    )
    rows = max(1, _CACHED // classes)
    scratch = torch.empty(2, min(rows, images), classes, dtype=torch.float32)
    for start in range(0, images, rows):
        block = slice(start, start + rows)
        part = _Columns(**{name: values[..., block] for name, values in vars(columns).items()})
        _fill(part, members[:, block], target[block], scratch[:, : len(target[block])])
    # Log-sum-exp is the highest logit less its log-probability, which lies in -log k ... 0; in
    # float64, as the difference of two logits may overflow.
    gap = _at(members, target.expand(passes, -1)) - _at(members, columns.best)
    nll = -(gap + columns.highest.double().log()).logsumexp(0) + np.log(passes)
    brier = 1 - 2 * (-nll).exp() + columns.norm.double() ** 2
    return Outcomes(
        target=target.numpy(),
        predicted=columns.predicted.numpy(),
        correct=(columns.predicted == target).numpy(),
        top5=(columns.above + columns.equal_before < _TOP).numpy(),
        confidence=columns.confidence.numpy(),
        nll=nll.clamp(min=0).numpy(),  # rounding goes below 0 by one part in 10^7
        brier=brier.clamp(min=0).numpy(),
        classes=classes,
        passes=passes,
        provenance=predictions.provenance,
    )


@dataclass(frozen=True)
class _Columns:
    """Columns that are filled block by block; a block's columns are views."""

    best: Int64[Tensor, "s n"]  # class with the highest logit
    highest: Float[Tensor, "s n"]  # its probability
    predicted: Int64[Tensor, " n"]
    confidence: Float[Tensor, " n"]
    norm: Float[Tensor, " n"]  # of the probabilities
    above: Float[Tensor, " n"]  # how many classes are above the target,
    not_below: Float[Tensor, " n"]  # above it or equal,
    equal_before: Float[
        Tensor, " n"
    ]  # equal and before it in the order of classes, where it matters


def _fill(
    columns: _Columns,
    members: Float[Tensor, "s b k"],
    target: Int64[Tensor, " b"],
    scratch: Float[Tensor, "2 b k"],
) -> None:
    mean, member = scratch
    for i, logits in enumerate(members.float()):
        torch.softmax(logits, 1, out=member if i else mean)
        columns.best[i] = _argmax(logits)
        columns.highest[i] = _at(member if i else mean, columns.best[i])
        if i:
            mean += member
    ranked = members[0].float()
    columns.predicted.copy_(columns.best[0])
    if len(members) > 1:
        ranked = mean.div_(len(members))
        columns.predicted.copy_(_argmax(mean))
    columns.confidence.copy_(_at(mean, columns.predicted))
    columns.norm.copy_(torch.linalg.vector_norm(mean, dim=1))
    # Classes are ranked by value, equal ones by index: a model with equal logits for all has
    # classes 0 to 4 as its top 5.
    value, ones = ranked.gather(1, target[:, None]), torch.ones_like(ranked[0])
    counted = member  # counting by a product is fastest
    columns.above.copy_(torch.gt(ranked, value, out=counted) @ ones)
    columns.not_below.copy_(torch.ge(ranked, value, out=counted) @ ones)
    unclear = torch.nonzero((columns.above < _TOP) & (columns.not_below > _TOP))[:, 0]
    if len(unclear):
        before = torch.arange(ranked.shape[1]) < target[unclear, None]
        equal = ranked[unclear] == value[unclear]
        columns.equal_before[unclear] = (equal & before).sum(1).float()


def _argmax(rows: Float[Tensor, "b k"]) -> Int64[Tensor, " b"]:
    """Class of the first highest logit; NumPy's argmax is eight times as fast as torch's."""
    return torch.from_numpy(rows.numpy().argmax(1))


def _at(rows: Float[Tensor, "*b k"], places: Int64[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """One value of each row; of a stack of logits in float64."""
    values = rows.gather(-1, places[..., None])[..., 0]
    return values.double() if rows.ndim == 3 else values
