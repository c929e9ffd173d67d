"""Batches: validation of images, targets and models at the start of a measurement."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.trace.forward import Images, batch_size, part_of, pixels, placed
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather, rank, world_size

Batch = Images | Sequence  # images, or (images, targets)
B = TypeVar("B")


def check_whole(model: nn.Module) -> None:
    """Require that this process has the whole of each parameter, with its values."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    tensors = (*model.named_parameters(), *model.named_buffers())
    empty = next((name for name, tensor in tensors if tensor.is_meta), None)
    if empty is not None:
        raise InputError(
            f"the model must have its weights in memory, and {empty} lies on the meta device. "
            "Load the weights, as by model.to_empty(device='cpu') and load_state_dict."
        )
    sharded = any(isinstance(m, FullyShardedDataParallel) for m in model.modules())
    if sharded or any(isinstance(p, DTensor) for p in model.parameters()):
        raise InputError(
            "the model must not be sharded, as by FSDP: each process has a part of its "
            "parameters. Measure its checkpoints with vp.evolve."
        )


def check_evaluation_mode(model: nn.Module) -> None:
    """Require a model in evaluation mode; it is never switched for the user."""
    training = [name for name, module in model.named_modules() if module.training]
    if training:
        part = f", and its {training[0]} is not" if training[0] else ""
        raise InputError(f"model must be in evaluation mode{part}. Call model.eval() first.")


def blocks_on_grid(anatomy: Anatomy) -> list[Block]:
    """The blocks whose feature map lies on a spatial grid, in forward order."""
    check_evaluation_mode(anatomy.model)
    blocks = [block for block in anatomy if block.layout is not None]
    if not blocks:
        raise InputError(
            "model must have a block whose feature map lies on a spatial grid, and "
            f"{type(anatomy.model).__name__} has none"
        )
    return blocks


def images_of(batch: Batch, anatomy: Anatomy, compute: Compute) -> Images:
    """The images of a batch, on the device."""
    images: Images = batch[0] if isinstance(batch, tuple | list) and batch else batch  # pyrefly: ignore
    try:
        shape = tuple(pixels(images).shape[1:])
    except InputError as error:
        raise InputError(f"a batch must be images or (images, targets): {error}") from error
    expected = anatomy.image_shape
    if expected and shape != expected:
        raise InputError(
            f"images must be {_by(expected)}, as the model was dissected with, got "
            f"{_by(shape)}. Resize the images, or dissect the model with images of this size."
        )
    return on_device(images, compute)


def labeled(batch: Batch, compute: Compute) -> tuple[Images, Tensor]:
    """Images on the device, and the targets on the CPU: one class index, or what a task has."""
    images, targets = _pair(batch)
    try:
        number = batch_size(images)
    except InputError as error:
        raise InputError(f"a batch must be (images, targets): {error}") from error
    targets = torch.as_tensor(targets)
    if targets.ndim == 0 or len(targets) != number:
        raise InputError(
            f"targets must be one class index per image ({number}), got shape "
            f"{tuple(targets.shape)} of type {str(targets.dtype).removeprefix('torch.')}"
        )
    single = targets.ndim == 1 and not targets.is_floating_point()
    return on_device(images, compute), targets.cpu().long() if single else targets.cpu()


def targets_of(batch: Batch) -> Int64[Tensor, " b"] | None:
    """One class index for each image of a batch; None where it holds none, or -1 for none."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        return None
    if not isinstance(batch[1], Tensor | np.ndarray | list):
        return None
    targets = torch.as_tensor(batch[1])
    if targets.shape != (batch_size(batch[0]),) or targets.is_floating_point():
        return None
    return None if (targets < 0).any() else targets.cpu().long()


def in_halves(compute: Callable[[Images], Tensor], images: Images) -> Tensor:
    """What a function gives for each image, from halves of the batch where memory is too small.

    For quantities that do not depend on the batch.
    """
    try:
        return compute(images)
    except torch.OutOfMemoryError:
        number = batch_size(images)
        if number == 1:
            raise
    warnings.warn(
        f"{number} images do not fit the memory of the device together and run in halves; "
        "results do not depend on it.",
        stacklevel=2,
    )
    ends = ((0, number // 2), (number // 2, number))
    return torch.cat([in_halves(compute, part_of(images, *pair)) for pair in ends])


def on_device(images: Images, compute: Compute) -> Images:
    """The same images on the device."""
    return placed(images, compute.torch_device)


def positioned(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The batches of this process, each with the index of its first image in the data.

    A process sees only its own batches, which give the index only where all batches but the
    last have one size.
    """
    several, rest = world_size() > 1, iter(batches)
    first = list(islice(rest, 1)) if several else []
    size = max(gather(sum(len(batch[1]) for batch in first))) if several else 0
    start = rank() * size
    for batch in chain(first, rest):
        yield start, batch
        number = len(batch[1])
        if several and number > size:
            raise InputError(
                f"batches must have one size for several processes, got {number} images "
                f"after {size}"
            )
        start += world_size() * size if several else number


def in_order(parts: Sequence[B]) -> list[B]:
    """What all processes have of each of their batches, in the order of the data."""
    every = in_turn(gather(list(parts)))
    if not every:
        raise InputError("batches must hold at least one image, got none")
    return every


def in_turn(processes: Sequence[Sequence[B]]) -> list[B]:
    """The batches of several processes, which take turns with them.

    Example:
        >>> in_turn([[0, 2, 4], [1, 3]])
        [0, 1, 2, 3, 4]
    """
    turns = zip_longest(*processes)
    return [batch for turn in turns for batch in turn if batch is not None]


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def with_targets(batch: object) -> tuple[Images, Tensor]:
    """Images and targets of a batch, on their device; classes (B,) or probabilities (B, K)."""
    images, targets = _pair(batch)
    if not isinstance(targets, Tensor):
        raise InputError(f"targets must be a tensor, got {type(targets).__name__}")
    number = len(pixels(images))
    if targets.ndim == 0 or len(targets) != number:
        raise InputError(
            f"targets must have one entry per image ({number}), got shape "
            f"{tuple(targets.shape)}"
        )
    return images, targets


def _pair(batch: object) -> tuple[Images, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(
            f"a batch must be (images, targets), got {type(batch).__name__}; "
            "this measurement needs targets"
        )
    return batch[0], batch[1]


def first_images(images: Images) -> Images:
    """At most the first two images of a batch, for a trial run of a model."""
    return part_of(images, 0, 2)
