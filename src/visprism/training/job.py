"""Jobs: a model and data by name, made into what training takes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance
from visprism.data import (
    Feed,
    ImageSet,
    batches,
    load_data,
    loader_feed,
    memory_feed,
    statistics,
    stratified,
)
from visprism.data.image_set import NoSplitsError
from visprism.models import LoadedModel, load_model
from visprism.models.pretrained import names_weights
from visprism.training.recipe import Recipe

_SMALL = 64  # pixels a side, up to which images are kept in memory
_TOGETHER = 250  # test images


@runtime_checkable
class Reading(Protocol):
    """Wraps what is gone through, and shows how far it is under a label."""

    def __call__(self, items: Iterable, label: str) -> Iterable:
        """The same items."""
        ...


@dataclass(frozen=True)
class Job:
    """What to train, on what, and where to keep it."""

    model: str  # as `load_model` takes it
    data: str  # as `load_data` takes it
    folder: Path
    split: str | None = None  # None: "train", or all images where the data has no splits
    test: str = ""  # data for the evaluation; empty: the same
    test_split: str | None = None
    test_limit: int | None = None  # at most so many test images, of each class alike; None: all
    subset: float = 1.0  # part of the training images, of each class alike
    teacher: str = ""
    pretrained: bool = False
    size: tuple[int, int] | None = None  # (height, width); None: what the model wants
    skip_bad: bool = False
    workers: int = 4  # processes that read large images
    device: str = "cpu"
    sharded: bool = False  # weights shared out among processes
    resume: bool = False
    minutes: float = 10.0  # between states that are kept
    logs: tuple[str, ...] | None = None  # None: TensorBoard, where it is installed
    command: str = ""


def network_of(job: Job, recipe: Recipe) -> LoadedModel:
    """The model, with the recipe's stochastic depth among its arguments.

    Raises:
        InputError: if there is no such model, or it has no stochastic depth.
    """
    name, at, checkpoint = job.model.partition("@")
    rate = f"drop_path_rate={recipe.drop_path}"
    if recipe.drop_path and "drop_path_rate" not in name:
        name += f"{'&' if '?' in name else '?'}{rate}"
    try:
        text = f"{name}{at}{checkpoint}"
        return load_model(text, pretrained=job.pretrained, seed=recipe.seed)
    except InputError as error:
        if not (recipe.drop_path and "drop_path_rate" in str(error)):
            raise
        raise InputError(
            f"{job.model} has no stochastic depth; train it without drop_path="
            f"{recipe.drop_path}, by --set drop_path=0"
        ) from error


def training_images(
    job: Job,
    recipe: Recipe,
    side: int,
    reading: Reading,
    accept: Callable[[ImageSet], None] | None = None,
) -> ImageSet:
    """The images to train on; `accept` is shown them before their files are read.

    Raises:
        InputError: if there are none such, or `subset` is no part.
    """
    load = partial(
        load_data,
        job.data,
        skip_bad=job.skip_bad,
        limit=recipe.images,
        side=side,
        seed=recipe.seed,
        progress=partial(reading, label="reading images"),
        accept=accept,
    )
    try:
        images = load(split=job.split or "train")
    except NoSplitsError:
        if job.split is not None:
            raise
        images = load(split=None)
    return images if job.subset == 1 else stratified(images, job.subset, seed=recipe.seed)


def preprocessing_of(job: Job, network: LoadedModel, images: ImageSet) -> Preprocessing:
    """That of the model; small images with random weights have their own mean and deviation."""
    own = network.preprocessing
    own = replace(own, size=job.size, crop=1.0) if job.size else own
    if job.pretrained or names_weights(job.model) or max(own.size) > _SMALL:
        return own
    mean, std = statistics(images)
    some = tuple(each or 1.0 for each in std)  # 0: a channel that is the same everywhere
    return replace(own, mean=mean, std=some)


def test_images(job: Job, train: ImageSet, side: int, reading: Reading) -> ImageSet | None:
    """Images to evaluate on; None where the data has none but those that it trains on.

    Raises:
        InputError: if they cannot be read, or are of other classes than those to train on.
    """
    classes = train.num_classes

    def accept(images: ImageSet) -> None:
        if images.num_classes != classes:
            raise InputError(
                f"{images.name} has {images.num_classes} classes and the images to train on "
                f"have {classes}; evaluate on images of the same classes"
            )

    images = load_data(
        job.test or job.data,
        split=job.test_split,
        limit=job.test_limit,
        skip_bad=job.skip_bad,
        side=side,
        progress=partial(reading, label="reading test images"),
        accept=accept,
    )
    return None if not job.test and images.split == train.split else images


def test_batches(
    images: ImageSet, preprocessing: Preprocessing
) -> Iterable[tuple[Tensor, Tensor]]:
    """The images as the model wants them, in memory where they are small."""
    way = batches(images, preprocessing, _TOGETHER)
    return list(way) if max(preprocessing.size) <= _SMALL else way


def feed_of(job: Job, images: ImageSet, preprocessing: Preprocessing, recipe: Recipe) -> Feed:
    """Small images from memory, large ones from their files.

    Raises:
        InputError: if the images do not fit the recipe.
    """
    same = {
        "augmentation": recipe.augmentation,
        "seed": recipe.seed,
        "compute": Compute(job.device, recipe.precision),
    }
    if max(preprocessing.size) <= _SMALL:
        return memory_feed(images, preprocessing, recipe.batch_size, **same)
    workers = job.workers
    return loader_feed(images, preprocessing, recipe.batch_size, workers=workers, **same)


def result_fields(
    job: Job, recipe: Recipe, images: ImageSet, preprocessing: Preprocessing
) -> Provenance:
    """What is known of the model and the data before training."""
    return Provenance(
        model=job.model.partition("@")[0],
        data=images.name,
        images=len(images),
        image_shape=(3, *preprocessing.size),
        batch_size=recipe.batch_size,
        preprocessing=str(preprocessing),
        precision=recipe.precision,
        device=job.device,
        seed=recipe.seed,
        command=job.command,
        created=datetime.now(UTC).date().isoformat(),
    )
