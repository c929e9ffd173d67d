"""Batches: image sets as preprocessed tensors, most of them prepared ahead in threads."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.images.augmentation import STRONG, STRONG_LARGE, Augmentation
from visprism.images.augmented import Augmenter, checked_labels
from visprism.images.image_set import ImageSet
from visprism.images.pixels import crops_of, framing, normalized

_THREADS = 8  # at most, that prepare batches
_SMALL = 64  # pixels: longest side of images with padding instead of random resized crops

# Changes crops in eight bits, given the indices of their images.
Change = Callable[[UInt8[Tensor, "b c h w"], Sequence[int]], UInt8[Tensor, "b c h w"]]


@dataclass(frozen=True)
class Batches(Sequence):
    """Images and targets by batch; threads may prepare the next ones while one is used.

    A slice is read only when it is iterated over.
    """

    prepare: Callable[[range], Any]  # the batch of the images in a range
    images: int
    batch_size: int
    numbers: range  # of the batches, from 0
    threads: int = 1  # that prepare the next batches; 0: none

    def __len__(self) -> int:
        """Number of batches; the last one may be smaller."""
        return len(self.numbers)

    def __getitem__(self, index: int | slice) -> Any:
        """One batch, or the batches of a slice."""
        if isinstance(index, slice):
            return replace(self, numbers=self.numbers[index])
        return self._prepared(self.numbers[index])

    def __iter__(self) -> Iterator:
        if not self.threads:
            yield from map(self._prepared, self.numbers)
            return
        workers = ThreadPoolExecutor(self.threads, thread_name_prefix="batches")
        ahead: deque[Future] = deque()
        try:
            for number in self.numbers:
                ahead.append(workers.submit(self._prepared, number))
                if len(ahead) > self.threads:  # one to yield, and one for each thread
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            workers.shutdown(cancel_futures=True)

    def _prepared(self, number: int) -> Any:
        start = number * self.batch_size
        return self.prepare(range(start, min(start + self.batch_size, self.images)))


def in_batches(
    prepare: Callable[[range], Any], images: int, batch_size: int, threads: int = 1
) -> Batches:
    """`Batches` of a number of images."""
    return Batches(prepare, images, batch_size, range(-(-images // batch_size)), threads)


def batches(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    change: Change | None = None,
    augmentation: Augmentation | None = None,
    num_classes: int | None = None,
    seed: int = 0,
    crops: Callable[[range], UInt8[Tensor, "b 3 h w"]] | None = None,
) -> Batches:
    """The image set preprocessed for a model; threads prepare the next batches.

    Args:
        image_set: the images.
        preprocessing: size, crop, interpolation, mean and standard deviation.
        batch_size: images of a batch; the last one may have fewer.
        change: maps the crops in eight bits and their indices in the image set to the crops
            that the model gets.
        augmentation: of the images, by the seed and the number of the batch. Targets become
            probabilities of classes. In a batch of an odd size, the image in the middle is
            mixed with itself.
        num_classes: classes of the model, for the probabilities; by default the image set's.
        seed: of the augmentation.
        crops: returns the crops of consecutive images, where these are in memory.
    """
    if not hasattr(Image.Resampling, preprocessing.interpolation.upper()):
        raise InputError(
            "interpolation must be nearest, bilinear, bicubic or lanczos, got "
            f"{preprocessing.interpolation!r}"
        )
    targets = torch.from_numpy(image_set.targets)

    def plain(rows: range) -> tuple[Tensor, Tensor]:
        images = crops(rows) if crops else crops_of(image_set, preprocessing, rows)
        images = change(images, rows) if change else images
        return normalized(images, preprocessing), targets[rows.start : rows.stop]

    if augmentation is None:
        # A data set of the user's may not be read by several threads; files may.
        several = max(1, min(_THREADS, torch.get_num_threads() - 1))
        threads = several if image_set.size_of is not None else 1
        return in_batches(plain, len(image_set), batch_size, threads)
    classes = checked_labels(image_set, num_classes)
    way = framing(image_set, preprocessing)
    augmenter = Augmenter(augmentation, way, classes, seed)

    def augmented(rows: range) -> tuple[Tensor, Tensor]:
        plan = augmenter.plan(torch.tensor(rows), "fixed", rows.start // batch_size)
        pixels = augmenter.views(image_set.read(rows), plan)
        return augmenter.batch(pixels, targets[rows.start : rows.stop], plan)

    # timm draws from Python's global generator, which the caller's thread may use meanwhile.
    return in_batches(augmented, len(image_set), batch_size, threads=0)


def fixed_augmentation(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    batch_size: int,
    num_classes: int,
    *,
    seed: int = 0,
) -> Batches:
    """The image set with the paper's augmentation and soft targets, the same in every pass.

    Images of at most 64 pixels a side get `STRONG`, larger ones `STRONG_LARGE`; see `batches`.

    Source: Park and Kim (2022), How do vision transformers work?, appendix A.
    """
    augmentation = STRONG if max(preprocessing.size) <= _SMALL else STRONG_LARGE
    return batches(
        image_set,
        preprocessing,
        batch_size,
        augmentation=augmentation,
        num_classes=num_classes,
        seed=seed,
    )
