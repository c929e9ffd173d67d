"""Data sets and loaders of torch: as an image set, in order, and their normalization."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int64
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, Subset

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.images.image_set import NO_CLASS, ImageSet, balanced


def image_set(
    data: Dataset, *, name: str = "", limit: int | None = None, seed: int = 0
) -> ImageSet:
    """An image set from a data set of PIL images, or of (PIL image, class).

    Costs one pass over the images of a data set without `targets`, to read their classes.

    Args:
        data: a map-style data set, such as torchvision's without a transform.
        name: for provenance and figures; by default the type of the data set.
        limit: largest number of images, balanced over the classes and selected at random.
        seed: of the selection.

    Example:
        >>> from torchvision.datasets import FakeData
        >>> pictures = image_set(FakeData(size=40, num_classes=4), limit=8)
        >>> len(pictures), pictures[0][0].mode
        (8, 'RGB')
    """
    pictures = image_set_of(data)
    if pictures is None:
        raise InputError(
            f"items of data must be PIL images, or pairs of a PIL image and a class, got a "
            f"{type(_parted(data[0])[0]).__name__}. Remove the transform to tensors."
        )
    if limit is not None:
        pictures = pictures.subset(balanced(pictures.targets, limit, seed=seed))
    return replace(pictures, source=name or pictures.source)


def image_set_of(dataset: Dataset) -> ImageSet | None:
    """A data set of PIL images as an image set; None if its items are something else."""
    number = _length(dataset)
    picture, label = _parted(dataset[0])
    if not isinstance(picture, Image.Image):
        return None
    labels = [NO_CLASS] * number
    if label is not None:
        stated = _targets(dataset)
        labels = [_parted(dataset[i])[1] for i in range(number)] if stated is None else stated
    try:
        targets = np.array([int(label) for label in labels], dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"targets must be one class index per image, got {labels[0]!r} of the first"
        ) from error
    owner: Any = dataset
    while isinstance(owner, Subset):
        owner = owner.dataset
    classes = getattr(owner, "classes", None) or map(str, range(targets.max(initial=-1) + 1))

    def read(positions: Sequence[int]) -> list[Image.Image]:
        return [_parted(dataset[i])[0].convert("RGB") for i in positions]

    return ImageSet(type(dataset).__name__, "", tuple(classes), targets, read)


def in_order(
    loader: DataLoader, limit: int | None = None, *, seed: int = 0
) -> tuple[DataLoader, Int64[np.ndarray, " n"] | None]:
    """A loader of the same data set without shuffling, so that every run reads the same images.

    With `limit` it reads at most that number of images, selected at random by `seed`, and
    balanced over classes where the data set states its `targets`. A loader that selects images
    by itself, with a sampler of weights for instance, is returned as it is.

    Returns:
        The loader, and the indices of its images in the data set where they are known.
    """
    dataset, sampler = loader.dataset, loader.sampler
    shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement
    if loader.batch_size is None or not (shuffled or isinstance(sampler, SequentialSampler)):
        return loader, None
    number = _length(dataset)
    if len(sampler) != number:  # pyrefly: ignore (both kinds have a length)
        return loader, None
    chosen = np.arange(number)
    if limit is not None and limit < number:
        try:
            classes = np.array([int(label) for label in _targets(dataset)], dtype=np.int64)
        except (TypeError, ValueError):  # the data set states none, or no classes
            classes = np.arange(0)
        if len(classes) != number:
            classes = np.full(number, NO_CLASS)
        chosen = balanced(classes, limit, seed=seed)
    unshuffled = DataLoader(
        Subset(dataset, chosen.tolist()),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return unshuffled, chosen


def normalization_of(dataset: Any) -> Preprocessing | None:
    """Mean and deviation of the last ``Normalize`` in a torchvision pipeline; None without one.

    The size is that of a single pixel: the caller knows the size of the tensors.
    """
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    transform = getattr(dataset, "transform", None)
    last = [None, *(getattr(transform, "transforms", None) or [transform])][-1]
    if type(last).__name__ != "Normalize":
        return None
    mean, std = (tuple(map(float, getattr(last, key))) for key in ("mean", "std"))
    return Preprocessing((1, 1), mean=mean, std=std)


def _targets(dataset: Any) -> Any:
    """The classes that a data set states without its images, also through `Subset`."""
    if isinstance(dataset, Subset):
        targets = _targets(dataset.dataset)
        return None if targets is None else [targets[i] for i in dataset.indices]
    return getattr(dataset, "targets", None)


def _length(dataset: Any) -> int:
    try:
        number = len(dataset)
    except TypeError:
        raise InputError(
            f"data must have a length, got the data set {type(dataset).__name__} without one. "
            "Pass a DataLoader."
        ) from None
    if not number:
        raise InputError(
            f"data must have at least one image, got an empty {type(dataset).__name__}"
        )
    return number


def _parted(item: Any) -> tuple[Any, Any]:
    """An image and its class; None without one."""
    if not isinstance(item, tuple | list) or not item:
        return item, None
    return item[0], item[1] if len(item) > 1 else None
