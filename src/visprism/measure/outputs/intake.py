"""Intake: batches with labels, on the device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from visprism.anatomy import Images, batch_size
from visprism.errors import InputError
from visprism.parallel import Compute, gather, rank, world_size

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


def placed(own: Iterable[Labelled]) -> Iterator[tuple[int, Labelled]]:
    """The batches of this process, each with the place of its first image in the data.

    Of several processes each knows but its own, which tell the place only where all batches but
    the last have one size.

    Raises:
        InputError: if a batch of several processes is larger than their first.
    """
    rest = iter(own)
    first = list(islice(rest, 1))
    size = max(gather(sum(map(_number, first))))  # also of a process that has none
    start = rank() * size
    for batch in chain(first, rest):
        yield start, batch
        number = _number(batch)
        if world_size() > 1 and number > size:
            raise InputError(
                f"a batch of {number} images comes after one of {size}; several processes want"
                " batches of one size"
            )
        start += number if world_size() == 1 else world_size() * size


def _number(batch: Labelled) -> int:
    """How many images; 0 of what is no batch, which is refused where it is used."""
    try:
        return len(batch[1])  # pyrefly: ignore
    except (TypeError, IndexError, KeyError):
        return 0
