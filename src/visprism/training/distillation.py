"""Losses of training: cross-entropy with probabilities, and distillation from a teacher.

Source: Touvron et al. (2021), Training data-efficient image transformers and distillation
through attention, eq. 2 and 3; Hinton et al. (2015), Distilling the knowledge in a neural
network.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from visprism.core.errors import InputError
from visprism.training.recipe import Recipe

Logits = Float[Tensor, "b k"]


def task_loss(outputs: Tensor | Sequence[Tensor], targets: Logits) -> Float[Tensor, " b"]:
    """-sum_k t_k log softmax(logits)_k of each example, in nats; of several outputs, the first.

    Raises:
        InputError: if the model gives no logits, or not one for each class of the targets.
    """
    logits, _ = both(outputs)
    if logits.ndim != 2 or logits.shape[1] != targets.shape[1]:
        raise InputError(
            f"the model gives {tuple(logits.shape)} for {len(targets)} images of "
            f"{targets.shape[1]} classes; wants one logit for each class"
        )
    return cross_entropy(logits.float(), targets, reduction="none")


def distillation_loss(
    outputs: Tensor | Sequence[Tensor],
    targets: Logits,
    teacher: Float[Tensor, "b j"],
    recipe: Recipe,
) -> Float[Tensor, " b"]:
    """The loss of each example with a teacher's logits z_t, a student's z and z_d.

    With a = `distil_weight` and T = `temperature`, and CE the cross-entropy,

    - ``"soft"``: (1 - a) CE(z, y) + a T² KL(softmax(z_t / T) || softmax(z_d / T));
    - ``"hard"``: (1 - a) CE(z, y) + a CE(z_d, argmax z_t).

    z_d are the logits of the distillation token where the model gives two outputs, else z. The
    divergence is a mean over examples, as in the paper; its code divides by the classes too.

    Raises:
        InputError: if teacher and student differ in classes.
    """
    own = task_loss(outputs, targets)
    _, logits = both(outputs)
    if teacher.shape != logits.shape:
        raise InputError(
            f"the teacher has {teacher.shape[-1]} classes and the model {logits.shape[-1]}; "
            "a teacher knows the classes of its student"
        )
    if recipe.distil == "hard":
        taught = cross_entropy(logits.float(), teacher.argmax(1), reduction="none")
    else:
        t = recipe.temperature
        wanted = log_softmax(teacher.float() / t, 1)
        given = log_softmax(logits.float() / t, 1)
        taught = t**2 * kl_div(given, wanted, reduction="none", log_target=True).sum(1)
    return (1 - recipe.distil_weight) * own + recipe.distil_weight * taught


def both(outputs: Tensor | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The logits of the class token and of the distillation token; twice the same of one."""
    if isinstance(outputs, Tensor):
        return outputs, outputs
    return outputs[0], outputs[1]
