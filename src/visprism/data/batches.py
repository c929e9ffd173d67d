"""Batches: image sets as the tensors that a model takes, prepared while the model works."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from PIL import Image
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.data.image_set import ImageSet

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")

Batch = tuple[Float[Tensor, "b 3 h w"], Int64[Tensor, " b"]]
# Changes crops, given which images of the set they are.
Change = Callable[[UInt8[Tensor, "b 3 h w"], Sequence[int]], UInt8[Tensor, "b 3 h w"]]


def unchanged(images: UInt8[Tensor, "b 3 h w"], numbers: Sequence[int]) -> Tensor:  # noqa: ARG001
    """The images as they are."""
    return images


def framing(image_set: ImageSet, preprocessing: Preprocessing) -> Preprocessing:
    """The preprocessing, without a second crop of images that have been cropped already."""
    return replace(preprocessing, crop=1.0) if image_set.framed else preprocessing


def cropped(image: Image.Image, preprocessing: Preprocessing) -> UInt8[Tensor, "3 h w"]:
    """The centre of the image, which is resized until it just covers the frame of the crop.

    Source: the rounding is that of torchvision and timm, to which every weight is accustomed.
    """
    height, width = (int(side / preprocessing.crop) for side in preprocessing.size)
    if image.height * width <= image.width * height:  # its height is what just covers
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


def standardised(
    images: UInt8[Tensor, "b 3 h w"], preprocessing: Preprocessing
) -> Float[Tensor, "b 3 h w"]:
    """Pixels in 0 ... 1, less the mean, over the standard deviation, by channel."""
    mean, std = (
        torch.tensor(values)[:, None, None]
        for values in (preprocessing.mean, preprocessing.std)
    )
    return images.float().div_(255).sub_(mean).div_(std)


@dataclass(frozen=True)
class Batches(Sequence):
    """Images and targets, batch by batch; an iteration prepares the next batch meanwhile."""

    image_set: ImageSet
    preprocessing: Preprocessing
    batch_size: int
    numbers: range  # of the batches, the first has number 0
    change: Change = unchanged  # of the crops, before they are standardised

    def __len__(self) -> int:
        """Number of batches; the last of all may be smaller."""
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
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches")
        ahead: deque[Future[Batch]] = deque()
        try:
            for number in self.numbers:
                ahead.append(worker.submit(self._prepared, number))
                if len(ahead) == 2:  # one to hand out, and one in preparation
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            worker.shutdown(cancel_futures=True)

    def _prepared(self, number: int) -> Batch:
        start = number * self.batch_size
        positions = range(start, min(start + self.batch_size, len(self.image_set)))
        crops = stacked(self.image_set.read(positions), self.preprocessing)
        images = self.change(crops, positions)
        targets = torch.from_numpy(self.image_set.targets[positions.start : positions.stop])
        return standardised(images, self.preprocessing), targets


def batches(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    change: Change = unchanged,
) -> Batches:
    """The image set as a model wants it; the next batch is prepared in a thread of its own.

    `change` is given the crops in eight bits and their places in the image set, and gives what
    the model is shown in their place.

    Raises:
        InputError: if the batch size or the interpolation is none.
    """
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; wants at least 1 image")
    if preprocessing.interpolation not in _INTERPOLATIONS:
        raise InputError(
            f"interpolation is {preprocessing.interpolation!r}; "
            f"wants one of {', '.join(_INTERPOLATIONS)}"
        )
    number = -(-len(image_set) // batch_size)
    way = framing(image_set, preprocessing)
    return Batches(image_set, way, batch_size, range(number), change)
