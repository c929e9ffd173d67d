"""Cached batches: images and targets in memory, the same for every point."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from visprism.anatomy import Images, pixels
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.measure.inference import default_batch_size
from visprism.passes.batches import first_images, on_device, with_targets


@dataclass(frozen=True)
class CachedBatches:
    """Images and targets in batches, on the device, in the order of the data."""

    batches: tuple[tuple[Images, Tensor], ...]
    image_shape: tuple[int, ...]  # (channels, height, width)

    def __len__(self) -> int:
        """Number of images."""
        return sum(len(targets) for _, targets in self.batches)

    @property
    def batch_size(self) -> int:
        """Number of images in the largest batch."""
        return max(len(targets) for _, targets in self.batches)

    def first_images(self) -> Images:
        """At most two images, for a trial run of the model."""
        return first_images(self.batches[0][0])

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, from which a fingerprint of the data is computed."""
        for images, targets in self.batches:
            yield from images.values() if isinstance(images, Mapping) else (images,)
            yield targets


def cache_batches(
    batches: Iterable, *, batch_size: int | None, compute: Compute
) -> CachedBatches:
    """Read batches of (images, targets) once, and cut them into batches of another size.

    A loader that draws a new augmentation in each pass is read once, so that all points of a
    landscape see the same samples. The images stay in memory.

    Args:
        batches: of (images, targets); targets are classes (B,) or probabilities (B, K).
        batch_size: images per batch; by default the fastest size for images of this size.
        compute: device on which they are held.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    parts = [_labeled(batch) for batch in batches]
    if not parts:
        raise InputError("batches must hold at least one image, got none")
    shapes = {tuple(pixels(images).shape[1:]) for images, _ in parts}
    if len(shapes) > 1:
        sizes = ", ".join(sorted("x".join(map(str, shape)) for shape in shapes))
        raise InputError(f"images must have one shape, got {sizes}. Resize them.")
    (shape,) = shapes
    size = batch_size or default_batch_size(parts[0][0], compute)
    size = int(size)  # `torch.split` takes no integers of NumPy
    images = [on_device(part, compute) for part in _split([i for i, _ in parts], size)]
    targets = torch.cat([targets for _, targets in parts]).to(compute.torch_device).split(size)
    return CachedBatches(tuple(zip(images, targets, strict=True)), tuple(shape))


def _split(parts: list[Images], size: int) -> list[Images]:
    """The same images in batches of `size`."""
    if isinstance(parts[0], Mapping):
        names = list(parts[0])
        columns = [torch.cat([images[n] for images in parts]).split(size) for n in names]  # pyrefly: ignore
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(torch.cat(parts).split(size))  # pyrefly: ignore


def _labeled(batch: object) -> tuple[Images, Tensor]:
    """Images and targets of a batch."""
    images, targets = with_targets(batch)
    if not targets.is_floating_point() and (targets < 0).any():
        raise InputError(
            f"targets must be class indices from 0 on, got {int(targets.min())}. "
            "Use labeled images."
        )
    return images, targets
