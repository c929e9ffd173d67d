"""Data by name: from text such as ``shapes?size=64`` or ``photos/val`` to an image set."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from jaxtyping import Int64
from PIL import Image
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
)

from visprism.core.errors import InputError
from visprism.core.files import exists
from visprism.core.preprocessing import Preprocessing
from visprism.core.processes import world_size
from visprism.core.run import Progress
from visprism.images.image_set import DATA, NO_CLASS, ImageSet, sample, stratified
from visprism.images.images import LABELS, ordered
from visprism.images.pixels import rgb_of

_TABLES = ("*.parquet", "*/*.parquet")  # in a folder that is named without its kind
_NORMALIZING = {"Normalize", "ImageClassification"}  # transforms that have a mean and a std
_MAX_NAMES = 3  # of unreadable images in an error, which counts all of them


def load_data(
    spec: str,
    *,
    split: str | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    checked: int | None = None,
    side: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    accept: Callable[[ImageSet], None] | None = None,
) -> ImageSet:
    """The images with the name `spec`, ``NAME[:PATH][?OPTION=VALUE&...]``.

    A path without a name is ``parquet:PATH`` where it has such files, and ``folder:PATH`` else.
    Every data set has the option ``subset=0.1``, a fraction of each class; see `stratified`.
    Files are read once, so that a damaged file is reported before a measurement starts.

    Args:
        spec: the data.
        split: by default the first of test, val, ... train that exists.
        limit: largest number of images, selected at random with the class frequencies of the
            data, in the order of `nested_order`.
        skip_bad: whether images that cannot be read are left out instead of raising.
        checked: number of files that are read, spread over all; None, or with `skip_bad`: all.
        side: side in pixels of generated images, if `spec` has none.
        seed: of the random selection.
        progress: shows how many files are checked.
        accept: receives the images before their files are read, and may raise.
    """
    images, fraction = _opened(spec, split, side)
    if fraction is not None:
        images = stratified(images, fraction, seed=seed)
    if limit is not None:
        images = images.subset(sample(images.targets, limit, seed=seed))
    if accept is not None:
        accept(images)
    number = len(images) if skip_bad or checked is None else min(checked, len(images))
    return _readable(images, number, skip_bad=skip_bad, progress=progress)


def _opened(spec: str, split: str | None, side: int | None) -> tuple[ImageSet, float | None]:
    """The image set, and the value of the option ``subset``."""
    body, _, query = spec.partition("?")
    name, colon, place = body.partition(":")
    if name not in set(DATA) and exists(path := Path(body).expanduser()):
        tables = path.suffix == ".parquet" or any(next(path.glob(p), None) for p in _TABLES)
        name, colon, place = "parquet" if tables else "folder", ":", body
        body = name + colon + place
    function = DATA[name]
    parameters = inspect.signature(function).parameters.values()
    takes_path = any(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    if takes_path and not place:
        raise InputError(f"data {name} must have a path, got {spec!r}. Write {name}:PATH.")
    if colon and not takes_path:
        raise InputError(f"data {name} must have no path, got {spec!r}. Write {name}.")
    kinds = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    kinds = {key: kind for key, kind in kinds.items() if key != "split"} | {"subset": float}
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in options:
            raise InputError(f"{key} must be given once, got it twice in {spec!r}")
        if key not in kinds:
            raise InputError(
                f"options of data {name} must be of {', '.join(kinds)}, got {key!r} in {spec!r}"
            )
        try:
            options[key] = kinds[key](value) if kinds[key] in (int, float) else value
        except ValueError:
            what = "an integer" if kinds[key] is int else "a fraction such as 0.1"
            raise InputError(f"{key} must be {what}, got {value!r} in {spec!r}") from None
    fraction = options.pop("subset", None)
    source = [part for part in query.split("&") if part and not part.startswith("subset=")]
    if side is not None and "size" in kinds and "size" not in options:
        options["size"] = side
        source.append(f"size={side}")
    source += [] if fraction is None else [f"subset={fraction:g}"]
    images = function(*[place] * takes_path, split=split, **options)
    return replace(images, source="?".join(filter(None, [body, "&".join(source)]))), fraction


def check_name(spec: str, split: str | None = None) -> None:
    """Raise if there are no images with a name; their files are not read."""
    _opened(spec, split, None)


def content_of(spec: str, split: str | None = None) -> str:
    """A digest of the images with a name; see `Images.fingerprint`."""
    return ordered(_opened(spec, split, None)[0]).fingerprint()


def _readable(
    images: ImageSet, number: int, *, skip_bad: bool, progress: Progress | None
) -> ImageSet:
    """The images, of which `number` are tried; those that fail raise, unless `skip_bad`."""
    indices = np.linspace(0, len(images), number, endpoint=False).astype(int).tolist()
    tracked = progress(indices, "checking images") if progress else indices
    faults = [images.fault(i) for i in tracked]
    bad = tuple(fault for fault in faults if fault is not None)
    if not bad:
        return images
    named = ", ".join(bad[:_MAX_NAMES]) + (", ..." if len(bad) > _MAX_NAMES else "")
    counted = f"{len(bad)} of {number} images of {images.name} cannot be read: {named}"
    if len(bad) == number:
        raise InputError(counted)
    if not skip_bad:
        raise InputError(f"{counted}. Repair them, or set skip_bad=True to leave them out.")
    readable = np.array([i for i, fault in enumerate(faults) if fault is None])
    return replace(images.subset(readable), skipped=bad)


# Data sets and loaders of torch: as an image set, in order, and their normalization.


def image_set(
    data: Any, *, name: str = "", limit: int | None = None, seed: int = 0
) -> ImageSet:
    """An image set from a data set, or list, of PIL images, or of (PIL image, class).

    A mapping, as of Hugging Face, is the first picture in it and its label.

    With `limit` it has at most that number of images, selected at random by `seed`, in the
    order of `nested_order`: with the class frequencies of the data where it states its
    `targets`.
    Without them, it costs one pass over the selected images, to read their classes.

    Example:
        >>> from torchvision.datasets import FakeData
        >>> pictures = image_set(FakeData(size=40, num_classes=4), limit=8)
        >>> len(pictures), pictures[0][0].mode
        (8, 'RGB')
    """
    pictures = image_set_of(data, limit=limit, seed=seed)
    if pictures is None:
        raise InputError(
            f"items of data must be PIL images, or pairs of a PIL image and a class, got a "
            f"{type(_parted(data[0])[0]).__name__}. Remove the transform to tensors."
        )
    if limit is not None:
        pictures = pictures.subset(sample(pictures.targets, limit, seed=seed))
    return replace(pictures, source=name or pictures.source)


def image_set_of(dataset: Any, *, limit: int | None = None, seed: int = 0) -> ImageSet | None:
    """A data set of PIL images as an image set; None if its items are something else.

    Classes that only the items tell are read for `limit` images, which the image set then has.
    """
    number = _length(dataset)
    picture, label = _parted(dataset[0])
    if not isinstance(picture, Image.Image):
        return None
    rows, labels = np.arange(number), _targets(dataset)
    if label is None:
        labels = [NO_CLASS] * number
    elif labels is None:
        rows = np.sort(sample(np.full(number, NO_CLASS), limit, seed=seed))
        labels = [_parted(dataset[i])[1] for i in rows.tolist()]

    def read(positions: Sequence[int]) -> list[Image.Image]:
        return [rgb_of(_parted(dataset[int(rows[i])])[0]) for i in positions]

    name, targets = type(dataset).__name__, _class_indices(labels)
    return ImageSet(name, "", class_names_of(dataset), targets, read, positions=rows)


def _class_indices(labels: Any) -> Int64[np.ndarray, " n"]:
    """Labels as they are stated, which must be integers."""
    label = labels[0]
    try:
        for label in labels:
            if int(label) != label:
                raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"targets must be one class index per image, got {label!r}") from None
    return np.array([int(label) for label in labels], dtype=np.int64)


def class_names_of(dataset: Any) -> tuple[str, ...]:
    """The names that a data set states, synonyms joined by commas; empty without a list.

    Its attribute is ``classes``, as in torchvision, or ``class_names``, or it has ``features``
    as in Hugging Face. A ``target_transform`` makes other classes, whose names are not known.
    """
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    if getattr(dataset, "target_transform", None) is not None:
        return ()
    features = getattr(dataset, "features", None)
    labels = (
        [features[k] for k in LABELS if k in features] if isinstance(features, dict) else []
    )
    stated = (getattr(dataset, "classes", None), getattr(dataset, "class_names", None))
    named = (*stated, *(getattr(label, "names", None) for label in labels))
    names = next((names for names in named if names), None)
    if not isinstance(names, list | tuple):
        return ()
    return tuple(", ".join(n) if isinstance(n, tuple | list) else str(n) for n in names)


def in_order(
    loader: DataLoader, limit: int | None = None, *, seed: int = 0
) -> tuple[DataLoader, Int64[np.ndarray, " n"] | None]:
    """A loader of the same data set without shuffling, so that every run reads the same images.

    With `limit` it reads at most that number of images, selected at random by `seed`, in the
    order of `nested_order`: with the class frequencies of the data where it states its
    `targets`. A loader that selects images
    by itself, with a sampler of weights for instance, is returned as it is.
    """
    inner = getattr(loader.batch_sampler, "batch_sampler", None)  # which Accelerate splits
    whole: Any = inner if hasattr(inner, "sampler") else loader
    dataset, sampler = loader.dataset, whole.sampler
    shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement
    # Over these processes, which share the images of a measurement in any case.
    shared = getattr(sampler, "num_replicas", None) == world_size()  # torch's, and timm's
    plain = shuffled or shared or isinstance(sampler, SequentialSampler)
    if whole.batch_size is None or not plain:
        return loader, None
    number = _length(dataset)
    if not shared and len(sampler) != number:  # pyrefly: ignore (both kinds have a length)
        return loader, None
    chosen = np.arange(number)
    if limit is not None:
        try:
            classes = np.array([int(label) for label in _targets(dataset)], dtype=np.int64)
        except (TypeError, ValueError):  # the data set states none, or no classes
            classes = np.arange(0)
        if len(classes) != number:
            classes = np.full(number, NO_CLASS)
        chosen = sample(classes, limit, seed=seed)
    unshuffled = DataLoader(
        Subset(dataset, chosen.tolist()),
        batch_size=whole.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return unshuffled, chosen


def normalization_of(dataset: Any) -> Preprocessing | None:
    """Mean and deviation of each ``Normalize`` in a torchvision pipeline; None if unknown.

    For several, (x - m) / s and then (x - n) / t, it is (x - (m + s n)) / (s t). A pipeline of
    torchvision's transforms that ends in tensors without ``Normalize`` gives pixels in [0, 1].
    The size is given as one pixel: the caller knows the size of the tensors.
    """
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    steps = list(_steps(getattr(dataset, "transform", None)))
    names = {type(step).__name__ for step in steps}
    known = "Lambda" not in names and all(
        type(step).__module__.startswith("torchvision.") for step in steps
    )
    scaled = names & {"ToTensor", "ConvertImageDtype"} or any(
        getattr(step, "scale", None) is True
        for step in steps  # ToDtype
    )
    if not names & _NORMALIZING and not (known and scaled):
        return None
    mean, std = np.zeros(1), np.ones(1)
    for step in steps:
        if type(step).__name__ in _NORMALIZING:
            mean = mean + std * np.atleast_1d(step.mean)
            std = std * np.atleast_1d(step.std)
    if mean.max() > 1:  # statistics of pixels in 0 ... 255
        mean, std = mean / 255, std / 255
    return Preprocessing((1, 1), mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def _steps(transform: Any) -> Iterator[Any]:
    """The steps of a torchvision pipeline, also of pipelines within it, in their order."""
    if hasattr(transform, "transforms"):
        for step in transform.transforms:
            yield from _steps(step)
    else:
        yield transform


def _targets(dataset: Any) -> Any:
    """The classes that a data set states without its images, also through `Subset`."""
    if isinstance(dataset, Subset):
        targets = _targets(dataset.dataset)
        return None if targets is None else [targets[i] for i in dataset.indices]
    if getattr(dataset, "target_transform", None) is not None:
        return None  # the classes are what it makes of them
    return getattr(dataset, "targets", None)


def _length(dataset: Any) -> int:
    number = len(dataset)
    if not number:
        raise InputError(
            f"data must have at least one image, got an empty {type(dataset).__name__}"
        )
    return number


def _parted(item: Any) -> tuple[Any, Any]:
    """An image and its class; None without one."""
    if isinstance(item, Mapping):  # as of Hugging Face
        pictures = [value for value in item.values() if isinstance(value, Image.Image)]
        labels = [value for key, value in item.items() if key in LABELS]
        return (pictures or [item])[0], labels[0] if len(labels) == 1 else None
    if not isinstance(item, tuple | list) or not item:
        return item, None
    return item[0], item[1] if len(item) > 1 else None
