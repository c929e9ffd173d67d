"""Data sets of torch and torchvision: as an image set, and the normalization they apply."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset, Subset

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.data.image_set import NO_CLASS, ImageSet


def image_set_of(dataset: Dataset, *, name: str = "") -> ImageSet | None:
    """A data set of PIL images, or of (PIL image, class), as an image set.

    Returns:
        None if its items are something else, such as tensors.

    Raises:
        InputError: if the data set is empty or has no length.
    """
    number = _length(dataset)
    picture, label = _parted(dataset[0])
    if not isinstance(picture, Image.Image):
        return None
    if label is None:
        targets = np.full(number, NO_CLASS, dtype=np.int64)
    else:
        stated = getattr(dataset, "targets", None)
        labels = (
            stated if stated is not None else [_parted(dataset[i])[1] for i in range(number)]
        )
        targets = np.asarray(labels, dtype=np.int64)
    classes = getattr(dataset, "classes", None) or [
        str(i) for i in range(int(targets.max(initial=-1)) + 1)
    ]

    def read(positions: Sequence[int]) -> list[Image.Image]:
        return [_parted(dataset[i])[0].convert("RGB") for i in positions]

    return ImageSet(name or type(dataset).__name__, "", tuple(classes), targets, read)


def normalization_of(dataset: Any) -> Preprocessing | None:  # noqa: ANN401 (any data set)
    """Mean and deviation of the last ``Normalize`` in a torchvision pipeline; None without one.

    The size is that of a single pixel: the caller knows the size of the tensors.
    """
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    transform = getattr(dataset, "transform", None)
    steps = getattr(transform, "transforms", None) or ([transform] if transform else [])
    last = steps[-1] if steps else None
    if type(last).__name__ != "Normalize":
        return None
    mean, std = (tuple(map(float, getattr(last, key))) for key in ("mean", "std"))
    return Preprocessing((1, 1), mean=mean, std=std)


def _length(dataset: Any) -> int:  # noqa: ANN401
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


def _parted(item: Any) -> tuple[Any, Any]:  # noqa: ANN401
    return (item[0], item[1]) if isinstance(item, tuple | list) else (item, None)
