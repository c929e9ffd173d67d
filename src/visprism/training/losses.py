"""Training losses: cross-entropy with soft targets, and distillation from a teacher.

Source: Touvron et al. (2021), Training data-efficient image transformers and distillation
through attention, eq. 2 and 3; Hinton et al. (2015), Distilling the knowledge in a neural
network.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    kl_div,
    log_softmax,
)

from visprism.core.errors import InputError
from visprism.models.sources import named_in_file
from visprism.training.recipe import Recipe

Logits = Float[Tensor, "b k"]
Outputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]  # of a model in training mode


# From outputs of a model in training and probabilities of classes to a loss for each image.
LabelLoss = Callable[[Outputs, Logits], Float[Tensor, " b"]]


def label_loss(recipe: Recipe, images: Int64[Tensor, " k"]) -> LabelLoss:
    """The loss of a recipe, with the number of training images of each class.

    ``"bce"`` is the mean over classes of the binary cross-entropy of each class against all
    others, as in timm. ``FILE.py:NAME`` is a function of the model's outputs and the targets
    (B, K), which are probabilities, and returns a loss for each image or their mean.
    """
    classes = len(images)
    weights: Tensor | None = None
    if recipe.class_weights == "balanced":
        weights = images.sum() / (classes * images.clamp(min=1).float())
    elif recipe.class_weights != "none":
        try:
            weights = torch.tensor([float(w) for w in recipe.class_weights.split(",")])
        except ValueError:
            weights = torch.ones(0)
        if weights.shape != (classes,) or not (weights >= 0).all() or not weights.any():
            raise InputError(
                f"class_weights must be none, balanced or {classes} numbers of at least 0, got "
                f"{recipe.class_weights!r}"
            )
    if recipe.loss == "cross-entropy":
        return partial(task_loss, weights=weights)
    if recipe.loss == "bce":
        return partial(_binary, weights=weights)
    if ".py:" not in recipe.loss:
        raise InputError(
            f"loss must be cross-entropy, bce or FILE.py:NAME, got {recipe.loss!r}"
        )
    if weights is not None:
        raise InputError(f"class_weights must be none with the loss {recipe.loss}")
    with named_in_file(recipe.loss) as function:
        return partial(_from_file, function=function, name=recipe.loss)


def task_loss(
    outputs: Outputs, targets: Logits, *, weights: Float[Tensor, " k"] | None = None
) -> Float[Tensor, " b"]:
    """-sum_k w_k t_k log softmax(logits)_k of each image, in nats; of two outputs, the first.

    The weights of classes are 1 by default.
    """
    logits = _checked_logits(outputs, targets)
    weights = None if weights is None else weights.to(logits.device)
    return cross_entropy(logits.float(), targets, weights, reduction="none")


def _binary(
    outputs: Outputs, targets: Logits, *, weights: Float[Tensor, " k"] | None
) -> Float[Tensor, " b"]:
    logits = _checked_logits(outputs, targets).float()
    losses = binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)
    return losses if weights is None else losses * (targets @ weights.to(targets.device))


def _from_file(
    outputs: Outputs, targets: Logits, *, function: LabelLoss, name: str
) -> Float[Tensor, " b"]:
    losses = function(outputs, targets)
    if not isinstance(losses, Tensor) or losses.shape not in ((), (len(targets),)):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InputError(
            f"{name} must return a loss for each of {len(targets)} images, or their mean, got "
            f"{shape}"
        )
    return losses.expand(len(targets))


def _checked_logits(outputs: Outputs, targets: Logits) -> Logits:
    logits, _ = class_and_distillation_logits(outputs)
    if logits.ndim != 2 or logits.shape[1] != targets.shape[1]:
        raise InputError(
            f"the model's output must be one logit per class ({targets.shape[1]}), got shape "
            f"{tuple(logits.shape)} for {len(targets)} images"
        )
    return logits


def distillation_loss(
    label_losses: Float[Tensor, " b"],
    outputs: Outputs,
    teacher: Float[Tensor, "b j"],
    recipe: Recipe,
) -> Float[Tensor, " b"]:
    """The loss of each image with logits z_t of a teacher, and z and z_d of a student.

    With a = `distillation_weight`, T = `temperature`, the loss L of the labels and
    cross-entropy CE,

    - ``"soft"``: (1 - a) L + a T² KL(softmax(z_t / T) || softmax(z_d / T));
    - ``"hard"``: (1 - a) L + a CE(z_d, argmax z_t).

    z_d are the logits of the distillation token if the model has two outputs, otherwise z. The
    divergence is a mean over images, as in the paper; its code divides by the number of classes
    too.
    """
    _, logits = class_and_distillation_logits(outputs)
    if teacher.shape != logits.shape:
        raise InputError(
            f"teacher must have the {logits.shape[-1]} classes of the model, got "
            f"{teacher.shape[-1]}"
        )
    if recipe.distillation == "hard":
        teacher_loss = cross_entropy(logits.float(), teacher.argmax(1), reduction="none")
    else:
        t = recipe.temperature
        target = log_softmax(teacher.float() / t, 1)
        student = log_softmax(logits.float() / t, 1)
        divergence = kl_div(student, target, reduction="none", log_target=True).sum(1)
        teacher_loss = t**2 * divergence
    weight = recipe.distillation_weight
    return (1 - weight) * label_losses + weight * teacher_loss


def class_and_distillation_logits(outputs: Outputs) -> tuple[Tensor, Tensor]:
    """The logits of the class and the distillation token; a single output stands for both."""
    if isinstance(outputs, Mapping):
        outputs = outputs["logits"]
    return (outputs, outputs) if isinstance(outputs, Tensor) else (outputs[0], outputs[-1])
