"""Samples: the images and targets that a loss is measured on, held in memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from visprism.anatomy import Images, pixels
from visprism.core.devices import Compute
from visprism.core.errors import InputError

# Pixels of a batch where the user names no batch size: what a layer gives then still fits into
# the caches of a CPU, and fills a GPU.
_PIXELS = {"cpu": 2**16, "other": 2**22}


@dataclass(frozen=True)
class Samples:
    """Images and targets in batches, on the device, in the order in which they came."""

    batches: tuple[tuple[Images, Tensor], ...]
    shape: tuple[int, ...]  # (C, H, W) of an image

    def __len__(self) -> int:
        """Number of images."""
        return sum(len(targets) for _, targets in self.batches)

    @property
    def batch_size(self) -> int:
        """Images of the largest batch."""
        return max(len(targets) for _, targets in self.batches)

    def few(self) -> Images:
        """Two images at most, to try something out."""
        images, targets = self.batches[0]
        if isinstance(images, Mapping):
            return {name: t[:2] if len(t) == len(targets) else t for name, t in images.items()}
        return images[:2]

    def tensors(self) -> Iterator[Tensor]:
        """All that there is: what a fingerprint of the data is made of."""
        for images, targets in self.batches:
            yield from images.values() if isinstance(images, Mapping) else (images,)
            yield targets


def hold(batches: Iterable, *, batch_size: int | None, compute: Compute) -> Samples:
    """Read batches of (images, targets) once, and cut them anew.

    What draws its augmentation anew in every pass is drawn once, so that all points of a
    landscape see the same samples. The images stay in memory.

    Args:
        batches: of (images, targets); targets are classes (B,) or probabilities (B, K).
        batch_size: images at once; by default as many as are fastest, by the images' size.
        compute: where they are held.

    Raises:
        InputError: if there are none, they have no targets, or they differ in shape.
    """
    parts: list[tuple[Images, Tensor]] = [_labelled(batch) for batch in batches]
    if not parts:
        raise InputError("no images were seen; is the data empty?")
    shapes = {tuple(pixels(images).shape[1:]) for images, _ in parts}
    if len(shapes) > 1:
        sizes = ", ".join(sorted("x".join(map(str, shape)) for shape in shapes))
        raise InputError(f"images of several shapes ({sizes}); resize them to one")
    (shape,) = shapes
    device = compute.torch_device
    kind = "cpu" if device.type == "cpu" else "other"
    size = batch_size or max(8, _PIXELS[kind] // max(1, shape[-1] * shape[-2]))
    if size < 1:
        raise InputError(f"batch_size is {batch_size}; wants at least 1 image")
    targets = torch.cat([targets for _, targets in parts])
    if isinstance(parts[0][0], Mapping):
        names = list(parts[0][0])
        columns = [torch.cat([images[n] for images, _ in parts]).split(size) for n in names]  # pyrefly: ignore
        cut: list[Images] = [
            {n: t.to(device) for n, t in zip(names, row, strict=True)}
            for row in zip(*columns, strict=True)
        ]
    else:
        whole = torch.cat([images for images, _ in parts])  # pyrefly: ignore
        cut = [images.to(device) for images in whole.split(size)]
    return Samples(tuple(zip(cut, targets.to(device).split(size), strict=True)), tuple(shape))


def _labelled(batch: object) -> tuple[Images, Tensor]:
    """A batch's images and targets.

    Raises:
        InputError: if it has no targets, or those of images without labels.
    """
    pair = isinstance(batch, tuple | list) and len(batch) == 2
    if not pair or not isinstance(batch[1], Tensor):  # pyrefly: ignore
        raise InputError(
            "a loss needs batches of (images, targets), got a batch without targets; label the "
            "images, as a folder for each class does"
        )
    images, targets = batch  # pyrefly: ignore
    if len(targets) != len(pixels(images)):
        raise InputError(
            f"a batch has {len(pixels(images))} images and {len(targets)} targets; "
            "wants one for each"
        )
    if not targets.is_floating_point() and (targets < 0).any():
        raise InputError(
            "images without labels (their targets are -1) have no loss; take labeled images"
        )
    return images, targets
