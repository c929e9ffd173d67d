"""Batches: image sets as preprocessed tensors, the next batch prepared in a thread."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar, overload

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from PIL import Image
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.data.image_set import ImageSet

T = TypeVar("T")
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")

Batch = tuple[Float[Tensor, "b 3 h w"], Int64[Tensor, " b"]]
# Changes crops in eight bits, given the indices of their images.
Change = Callable[[UInt8[Tensor, "b 3 h w"], Sequence[int]], UInt8[Tensor, "b 3 h w"]]
Crop = Callable[[Sequence[int]], UInt8[Tensor, "b 3 h w"]]  # crops by the indices of images


def unchanged(images: UInt8[Tensor, "b 3 h w"], indices: Sequence[int]) -> Tensor:
    """The images without a change."""
    return images


def framing(image_set: ImageSet, preprocessing: Preprocessing) -> Preprocessing:
    """The preprocessing without its center crop if the images are cropped already."""
    return replace(preprocessing, crop=1.0) if image_set.framed else preprocessing


def cropped(image: Image.Image, preprocessing: Preprocessing) -> UInt8[Tensor, "3 h w"]:
    """The center crop of the image, resized so that its shorter side fits the crop.

    Source: torchvision and timm, with their rounding.
    """
    height, width = (int(side / preprocessing.crop) for side in preprocessing.size)
    if image.height * width <= image.width * height:  # the height is the shorter side
        size = height * image.width // image.height, height
    else:
        size = width, width * image.height // image.width
    if size != image.size:
        image = image.resize(size, Image.Resampling[preprocessing.interpolation.upper()])
    height, width = preprocessing.size
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    pixels = np.array(image.crop((left, top, left + width, top + height)))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def stacked(
    images: Iterable[Image.Image], preprocessing: Preprocessing
) -> UInt8[Tensor, "b 3 h w"]:
    """The crops of several images."""
    return torch.stack([cropped(image, preprocessing) for image in images])


def normalized(
    images: UInt8[Tensor, "b 3 h w"], preprocessing: Preprocessing
) -> Float[Tensor, "b 3 h w"]:
    """Pixels in [0, 1] minus the mean, divided by the standard deviation, by channel."""
    mean, std = (
        torch.tensor(values)[:, None, None]
        for values in (preprocessing.mean, preprocessing.std)
    )
    return images.float().div_(255).sub_(mean).div_(std)


def prepared_ahead(prepare: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
    """What `prepare` returns for each number; a thread prepares the next while one is used."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
    ahead: deque[Future[T]] = deque()
    try:
        for number in numbers:
            ahead.append(worker.submit(prepare, number))
            if len(ahead) == 2:  # one to yield, and one in preparation
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        worker.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Batches(Sequence):
    """Images and targets by batch; the next batch is prepared while one is used."""

    image_set: ImageSet
    preprocessing: Preprocessing
    batch_size: int
    numbers: range  # of the batches, from 0
    change: Change = unchanged  # of the crops, before they are normalized
    crops: Crop | None = None  # that are in memory; None: images are read and cropped

    def __post_init__(self) -> None:
        _check_batch_size(self.batch_size)

    def __len__(self) -> int:
        """Number of batches; the last one may be smaller."""
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> "Batches": ...
    def __getitem__(self, index: int | slice) -> "Batch | Batches":
        """One batch; a slice is read only when it is iterated over."""
        if isinstance(index, slice):
            return replace(self, numbers=self.numbers[index])
        return self._prepared(self.numbers[index])

    def __iter__(self) -> Iterator[Batch]:
        return prepared_ahead(self._prepared, self.numbers)

    def _prepared(self, number: int) -> Batch:
        start = number * self.batch_size
        positions = range(start, min(start + self.batch_size, len(self.image_set)))
        if self.crops is None:
            crops = stacked(self.image_set.read(positions), self.preprocessing)
        else:
            crops = self.crops(positions)
        images = self.change(crops, positions)
        targets = torch.from_numpy(self.image_set.targets[positions.start : positions.stop])
        return normalized(images, self.preprocessing), targets


def batches(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    change: Change = unchanged,
    crops: Crop | None = None,
) -> Batches:
    """The image set preprocessed for a model; a thread prepares the next batch.

    Args:
        image_set: the images.
        preprocessing: size, crop, interpolation, mean and standard deviation.
        batch_size: images of a batch; the last one may have fewer.
        change: maps the crops in eight bits and their indices in the image set to the crops
            that the model gets.
        crops: returns the crops of images by their indices, where these are in memory.
    """
    _check_batch_size(batch_size)
    if preprocessing.interpolation not in _INTERPOLATIONS:
        raise InputError(
            f"interpolation must be one of {', '.join(_INTERPOLATIONS)}, got "
            f"{preprocessing.interpolation!r}"
        )
    number = -(-len(image_set) // batch_size)
    preprocessing = framing(image_set, preprocessing)
    return Batches(image_set, preprocessing, batch_size, range(number), change, crops)


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise InputError(f"batch_size must be positive, got {batch_size}")
