"""Outcomes: what a prediction says of each image, in one pass over the logits.

Every metric follows from these few numbers, so the logits are read once. Nothing grows with the
number of classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.measure.outputs.predictions import Predictions
from visprism.results.base import Result, column, result_type, scalar

_CACHED = 262_144  # numbers of a block, which stays in a core's cache: a megabyte
_TOP = 5


@result_type("outcomes")
class Outcomes(Result):
    """One row for each image."""

    target: np.ndarray = column("Target")
    predicted: np.ndarray = column(
        "Predicted", "", "the class with the highest probability; of equal ones the first"
    )
    correct: np.ndarray = column("Correct", "", "whether it is the target")
    top5: np.ndarray = column(
        "Top5", "", "whether the target is among the five highest, equal ones in their order"
    )
    confidence: np.ndarray = column(
        "Confidence", "", "probability of the predicted class, in float32"
    )
    nll: np.ndarray = column("Nll", "", "-log probability of the target, natural logarithm")
    brier: np.ndarray = column(
        "Brier", "", "squared distance of the probabilities from those of the truth"
    )
    classes: int = scalar("Classes", default=0)
    passes: int = scalar("Passes", "", "whose probabilities were averaged", default=1)


def outcomes(predictions: Predictions) -> Outcomes:
    """Class, confidence, NLL and Brier score of each image.

    The NLL comes from log-sum-exp and is finite for all finite logits: a softmax whose
    logarithm is taken underflows from differences of 104 on.

    Costs about five reads of the logits, all but one from cache; memory is that of a block.
    """
    members, target = predictions.members, predictions.targets
    passes, images, classes = members.shape
    found = _Found(
        best=torch.empty(passes, images, dtype=torch.long),
        surest=torch.empty(passes, images),
        predicted=torch.empty(images, dtype=torch.long),
        confidence=torch.empty(images),
        norm=torch.empty(images),
        above=torch.empty(images),
        upto=torch.empty(images),
        ahead=torch.zeros(images),
    )
    rows = max(1, _CACHED // classes)
    scratch = torch.empty(2, min(rows, images), classes)
    for start in range(0, images, rows):
        block = slice(start, start + rows)
        part = _Found(**{name: column[..., block] for name, column in vars(found).items()})
        _fill(part, members[:, block], target[block], scratch[:, : len(target[block])])
    # Log-sum-exp is the highest logit less its log-probability, which lies in -log k ... 0; in
    # float64, as the difference of two logits may overflow.
    gap = _at(members, target.expand(passes, -1)) - _at(members, found.best)
    nll = -(gap + found.surest.double().log()).logsumexp(0) + np.log(passes)
    brier = 1 - 2 * (-nll).exp() + found.norm.double() ** 2
    return Outcomes(
        target=target.numpy(),
        predicted=found.predicted.numpy(),
        correct=(found.predicted == target).numpy(),
        top5=(found.above + found.ahead < _TOP).numpy(),
        confidence=found.confidence.numpy(),
        nll=nll.clamp(min=0).numpy(),  # rounding goes below 0 by one part in 10^7
        brier=brier.clamp(min=0).numpy(),
        classes=classes,
        passes=passes,
        provenance=predictions.provenance,
    )


@dataclass(frozen=True)
class _Found:
    """What is written block by block; the columns of a block are views."""

    best: Int64[Tensor, "s n"]  # class with the highest logit
    surest: Float[Tensor, "s n"]  # its probability
    predicted: Int64[Tensor, " n"]
    confidence: Float[Tensor, " n"]
    norm: Float[Tensor, " n"]  # of the probabilities
    above: Float[Tensor, " n"]  # how many classes are above the target,
    upto: Float[Tensor, " n"]  # above it or equal,
    ahead: Float[Tensor, " n"]  # equal and before it in the order of classes, where it matters


def _fill(
    found: _Found,
    members: Float[Tensor, "s b k"],
    target: Int64[Tensor, " b"],
    scratch: Float[Tensor, "2 b k"],
) -> None:
    mean, own = scratch
    for i, logits in enumerate(members.float()):
        torch.softmax(logits, 1, out=own if i else mean)
        found.best[i] = _argmax(logits)
        found.surest[i] = _at(own if i else mean, found.best[i])
        if i:
            mean += own
    ranked = members[0].float()
    found.predicted.copy_(found.best[0])
    if len(members) > 1:
        ranked = mean.div_(len(members))
        found.predicted.copy_(_argmax(mean))
    found.confidence.copy_(_at(mean, found.predicted))
    found.norm.copy_(torch.linalg.vector_norm(mean, dim=1))
    # Classes come in the order of their values, equal ones in that of their numbers: a model
    # that gives one value to all names classes 0 to 4.
    value, ones = ranked.gather(1, target[:, None]), torch.ones(ranked.shape[1])
    counted = own  # counting by a product is fastest
    found.above.copy_(torch.gt(ranked, value, out=counted) @ ones)
    found.upto.copy_(torch.ge(ranked, value, out=counted) @ ones)
    unclear = torch.nonzero((found.above < _TOP) & (found.upto > _TOP))[:, 0]
    if len(unclear):
        before = torch.arange(ranked.shape[1]) < target[unclear, None]
        equal = ranked[unclear] == value[unclear]
        found.ahead[unclear] = (equal & before).sum(1).float()


def _argmax(rows: Float[Tensor, "b k"]) -> Int64[Tensor, " b"]:
    """Place of the first highest; NumPy's is vectorised, where torch's takes eight times."""
    return torch.from_numpy(rows.numpy().argmax(1))


def _at(rows: Float[Tensor, "*b k"], places: Int64[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """One number of each row; those of a whole set in float64."""
    found = rows.gather(-1, places[..., None])[..., 0]
    return found.double() if rows.ndim == 3 else found
