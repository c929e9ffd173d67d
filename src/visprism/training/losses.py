"""Training losses: cross-entropy with soft targets, and distillation from a teacher.

Source: Touvron et al. (2021), Training data-efficient image transformers and distillation
through attention, eq. 2 and 3; Hinton et al. (2015), Distilling the knowledge in a neural
network.
"""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from visprism.core.errors import InputError
from visprism.training.recipe import Recipe

Logits = Float[Tensor, "b k"]
Outputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]  # of a model in training mode


def task_loss(outputs: Outputs, targets: Logits) -> Float[Tensor, " b"]:
    """-sum_k t_k log softmax(logits)_k of each image, in nats; of two outputs, the first."""
    logits, _ = class_and_distillation_logits(outputs)
    if logits.ndim != 2 or logits.shape[1] != targets.shape[1]:
        raise InputError(
            f"the model's output must be one logit per class ({targets.shape[1]}), got shape "
            f"{tuple(logits.shape)} for {len(targets)} images"
        )
    return cross_entropy(logits.float(), targets, reduction="none")


def distillation_loss(
    outputs: Outputs,
    targets: Logits,
    teacher: Float[Tensor, "b j"],
    recipe: Recipe,
) -> Float[Tensor, " b"]:
    """The loss of each image with logits z_t of a teacher, and z and z_d of a student.

    With a = `distillation_weight`, T = `temperature` and cross-entropy CE,

    - ``"soft"``: (1 - a) CE(z, y) + a T² KL(softmax(z_t / T) || softmax(z_d / T));
    - ``"hard"``: (1 - a) CE(z, y) + a CE(z_d, argmax z_t).

    z_d are the logits of the distillation token if the model has two outputs, otherwise z. The
    divergence is a mean over images, as in the paper; its code divides by the number of classes
    too.
    """
    label_loss = task_loss(outputs, targets)
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
    return (1 - weight) * label_loss + weight * teacher_loss


def class_and_distillation_logits(outputs: Outputs) -> tuple[Tensor, Tensor]:
    """The logits of the class and the distillation token; a single output stands for both."""
    if isinstance(outputs, Mapping):
        outputs = outputs["logits"]
    return (outputs, outputs) if isinstance(outputs, Tensor) else (outputs[0], outputs[-1])
