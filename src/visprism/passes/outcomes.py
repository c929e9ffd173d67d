"""Outcomes: class, confidence and losses of each image, in one pass over the logits.

Every metric follows from these numbers, so the logits are read once.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.passes.predictions import Predictions
from visprism.table.result import Result, column, result_type, scalar

_ROWS = 1024  # images of a block, whose probabilities are in memory together
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


def outcomes_of(predictions: Predictions | Outcomes) -> Outcomes:
    """The outcomes of predictions, or the same outcomes."""
    return predictions if isinstance(predictions, Outcomes) else outcomes(predictions)


def outcomes(predictions: Predictions) -> Outcomes:
    """Class, confidence, NLL and Brier score of each image.

    The NLL comes from log-sum-exp and is finite for all finite logits: a softmax whose
    logarithm is taken underflows at differences of 104 or more. Classes are ranked by value,
    equal ones by index: a model with equal logits for all has classes 0 to 4 as its top 5.
    """
    target = predictions.targets
    blocks = zip(predictions.logits.split(_ROWS), target.split(_ROWS), strict=True)
    columns = zip(*(_columns(logits.float(), t) for logits, t in blocks), strict=True)
    predicted, top5, confidence, nll, brier = (torch.cat(parts) for parts in columns)
    return Outcomes(
        target=target.numpy(),
        predicted=predicted.numpy(),
        correct=(predicted == target).numpy(),
        top5=top5.numpy(),
        confidence=confidence.numpy(),
        nll=nll.clamp(min=0).numpy(),  # rounding goes below 0 by one part in 10^7
        brier=brier.clamp(min=0).numpy(),
        classes=predictions.num_classes,
        provenance=predictions.provenance,
    )


def _columns(
    logits: Float[Tensor, "b k"], target: Int64[Tensor, " b"]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Prediction, whether the target is in the top 5, confidence, NLL and Brier score."""
    p, best, at = logits.softmax(1), _argmax(logits), target[:, None]
    # Log-sum-exp is the highest logit less its log-probability, which lies in -log k ... 0; in
    # float64, as the difference of two logits may overflow.
    value, confidence = logits.gather(1, at), p.gather(1, best)
    log_p = value.double() - logits.gather(1, best).double() + confidence.double().log()
    log_p = log_p[:, 0]
    before = (logits == value) & (torch.arange(logits.shape[1]) < at)
    return (
        best[:, 0],
        (logits > value).sum(1) + before.sum(1) < _TOP,
        confidence[:, 0],
        -log_p,
        1 - 2 * log_p.exp() + torch.linalg.vector_norm(p, dim=1).double() ** 2,
    )


def _argmax(rows: Float[Tensor, "b k"]) -> Int64[Tensor, "b 1"]:
    """Class of the first highest value; NumPy's argmax is eight times as fast as torch's."""
    return torch.from_numpy(rows.numpy().argmax(1))[:, None]
