"""Findings: sentences that a result says about itself, some with a code to look up."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from visprism.core.provenance import Provenance
from visprism.core.statistics import wilson
from visprism.estimates.text import images_text

Severity = Literal["", "note", "warning"]


@dataclass(frozen=True)
class Code:
    """A condition that a reader should know of; docs/findings.md has a heading for each."""

    title: str
    severity: Severity
    meaning: str  # in one sentence


# Codes never change their meaning; a code that is not used any more is not used again.
CODES: dict[str, Code] = {
    "VP101": Code(
        "Accuracy not significantly above chance",
        "warning",
        "The model may be untrained, or trained on other classes or on images of another size "
        "or normalization: other quantities of its accuracy describe nothing that it learned.",
    ),
    "VP102": Code(
        "Too few images for the expected calibration error",
        "note",
        "A calibrated model has a positive ECE in so few images: read the debiased ECE.",
    ),
    "VP103": Code(
        "The gradient of the attack vanishes",
        "warning",
        "The attack cannot move where the gradient is 0, so that the model looks more "
        "robust than it is.",
    ),
    "VP104": Code(
        "CKA is near its permutation null",
        "note",
        "The similarity is not larger than for shuffled images: use larger batches.",
    ),
    "VP105": Code(
        "Frozen and re-estimated BatchNorm disagree",
        "warning",
        "The running statistics of BatchNorm do not fit the changed weights: compare "
        "networks only where both give the same order.",
    ),
    "VP106": Code(
        "Eigenvalues did not converge",
        "warning",
        "An eigenvalue lies within the residual of the stated value, but its rank is not "
        "certain.",
    ),
    "VP108": Code(
        "Dead channels",
        "note",
        "These channels are 0 for every image, and lower means over channels.",
    ),
    "VP109": Code(
        "Blocks that change nothing",
        "note",
        "The output of these blocks equals their input, as in networks whose residual "
        "branches start at zero.",
    ),
    "VP110": Code(
        "Sharpness above 2 / learning rate",
        "note",
        "Plain gradient descent with this learning rate would diverge along the leading "
        "eigenvector.",
    ),
    "VP111": Code(
        "Negative curvature that the leading eigenvalues do not show",
        "note",
        "The smallest eigenvalue is negative although the leading ones are positive: "
        "compare smallest eigenvalues, not only NEP.",
    ),
    # Alarms; see visprism.study.alarms and, from VP207, visprism.training.vitals.
    "VP201": Code(
        "Attention entropy collapsed",
        "warning",
        "Most heads attend to one key, so that their gradient vanishes: usually the logits of "
        "attention have grown. Look at the learning rate, the warm-up and query-key norms.",
    ),
    "VP202": Code(
        "Effective rank fell by half",
        "warning",
        "The tokens use half of the directions that they used: features collapse. Look at the "
        "learning rate, weight decay and the accuracy.",
    ),
    "VP203": Code(
        "More than 20% of channels are dead",
        "warning",
        "Their units get no gradient and rarely recover: usually one update was too large. "
        "Look at the learning rate and the biases before the activation.",
    ),
    "VP204": Code(
        "Outlier tokens appeared",
        "warning",
        "Some tokens of the grid have far larger norms than others: they no longer describe "
        "their place. Look at where they lie, and at register tokens.",
    ),
    "VP205": Code(
        "Curvature stays above the threshold of stability",
        "warning",
        "Updates along the leading eigenvector grow on the quadratic model of the loss: the "
        "loss may rise or diverge. Look at the learning rate and the loss.",
    ),
    "VP206": Code(
        "A block does not start to change its input",
        "warning",
        "The output of the block equals its input: its branch is 0 and may get no gradient. "
        "Look at its scales, its gradients and whether the optimizer has its parameters.",
    ),
    "VP207": Code(
        "Loss or weights are not finite",
        "warning",
        "The training has diverged and does not recover: go back to a checkpoint. Look at the "
        "learning rate, the warm-up, clipping, the precision and the images.",
    ),
    "VP208": Code(
        "The loss is far above its start",
        "warning",
        "Updates make the network worse than it was: usually the learning rate is too large. "
        "Look at the learning rate, the warm-up and clipping.",
    ),
    "VP209": Code(
        "The loss stays at chance",
        "warning",
        "The network predicts the same for all images. Look at the labels, the learning rate, "
        "dead activations and whether the optimizer has all parameters.",
    ),
    "VP210": Code(
        "Weights vanish or explode",
        "warning",
        "Weight decay or the updates move the norm of the weights by orders of magnitude. Look "
        "at the weight decay times the learning rate, and at the learning rate.",
    ),
    "VP211": Code(
        "Parameters do not change",
        "warning",
        "The updates do not reach these parameters. Look at the learning rate, requires_grad, "
        "gradients that are 0, and whether the optimizer was made for this network.",
    ),
    "VP212": Code(
        "An activation is dead",
        "warning",
        "The units before it get no gradient, and a shortcut hides it: the layers of this "
        "branch do not train. Look at the biases before the activation and the learning rate.",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One sentence: a quantity, its value, its interval, a comparison."""

    text: str  # begins in lower case where grammar allows, ends without a full stop
    code: str = ""  # "VP101" ...: a condition to act on or beware of

    @property
    def severity(self) -> Severity:
        """Severity of the code, "note" or "warning"; "" without a code."""
        return CODES[self.code].severity if self.code else ""

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]" if self.code else self.text


# Chance level: whether an accuracy is significantly above guessing.


def at_chance(accuracy: float, images: int, classes: int) -> bool:
    """Whether the lower end of Wilson's interval of an accuracy is at most 1 / classes.

    False where the accuracy, the number of images or the number of classes is not recorded.

    Example:
        >>> at_chance(0.11, 1000, 10), at_chance(0.14, 1000, 10)
        (True, False)
    """
    if classes < 2 or not images or not np.isfinite(accuracy):
        return False
    low, _ = wilson(np.array([round(accuracy * images)]), np.array([images]))
    return bool(low[0] <= 1 / classes)


def chance_findings(accuracy: float, origin: Provenance, classes: int) -> tuple[Finding, ...]:
    """VP101 for an accuracy that is not significantly above chance; empty otherwise."""
    if not at_chance(accuracy, origin.images, classes):
        return ()
    images = images_text(origin.images, origin.split)
    text = (
        f"accuracy {accuracy:.1%} on these {images} is not significantly "
        f"above chance ({1 / classes:.1%} for {classes} classes): the model may be "
        "untrained, or trained on other labels or on images of another size or "
        "normalization; the labels may be in another order, or the images too few to tell"
    )
    return (Finding(text, "VP101"),)
