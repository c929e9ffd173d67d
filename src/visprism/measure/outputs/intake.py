"""Intake: batches with labels, on the device."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from visprism.anatomy import Images, batch_size
from visprism.errors import InputError
from visprism.parallel import Compute

Labelled = Images | Sequence  # (images, targets); images alone are refused


def check_evaluating(model: nn.Module) -> None:
    """Whether the model is in evaluation mode.

    Raises:
        InputError: if not.
    """
    if any(module.training for module in model.modules()):
        raise InputError("the model is in training mode; call model.eval() first")


def labelled(batch: Labelled, compute: Compute) -> tuple[Images, Int64[Tensor, " b"]]:
    """Images on the device, and one target for each.

    Raises:
        InputError: if the batch is not (images, targets).
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(
            f"a batch is (images, targets), got {type(batch).__name__}; metrics need targets"
        )
    images, targets = batch
    try:
        number = batch_size(images)
    except InputError as error:
        raise InputError(f"a batch, of (images, targets): {error}") from error
    targets = torch.as_tensor(targets)
    if targets.shape != (number,) or targets.is_floating_point():
        raise InputError(
            f"a batch of {number} images has targets of shape {tuple(targets.shape)} and type "
            f"{str(targets.dtype).removeprefix('torch.')}; wants one class index for each image"
        )
    device = compute.torch_device
    if isinstance(images, Mapping):
        images = {name: tensor.to(device) for name, tensor in images.items()}
    else:
        images = images.to(device)
    return images, targets.cpu().long()
