"""Jobs: a model, data and a recipe by name, trained and kept in a folder."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor

from visprism.data import (
    Feed,
    ImageSet,
    batches,
    default_preprocessing,
    load_data,
    memory_feed,
)
from visprism.data.image_set import balanced
from visprism.errors import InputError
from visprism.models import LoadedModel, load_model, save_checkpoint
from visprism.parallel import Compute, processes, rank
from visprism.preprocessing import Preprocessing
from visprism.result import Provenance, written_whole
from visprism.training.following import Logger, make_loggers
from visprism.training.history import History
from visprism.training.loop import Progress, fit
from visprism.training.recipe import Recipe
from visprism.training.settings import as_yaml, flat

_SMALL = 64  # pixels a side, up to which images are kept in memory
_TOGETHER = 250  # test images


@runtime_checkable
class Reading(Protocol):
    """Wraps what is gone through, and shows how far it is under a label."""

    def __call__(self, items: Iterable, label: str) -> Iterable:
        """The same items."""
        ...


def _silent(items: Iterable, label: str) -> Iterable:  # noqa: ARG001 (`Reading` takes it)
    return items


@dataclass(frozen=True)
class Job:
    """What to train, on what, and where to keep it."""

    model: str  # as `load_model` takes it
    data: str  # as `load_data` takes it
    folder: Path
    split: str = "train"
    test: str = ""  # data for the evaluation; empty: the same
    test_split: str | None = None
    subset: float = 1.0  # part of the training images, of each class alike
    teacher: str = ""
    pretrained: bool = False
    size: tuple[int, int] | None = None  # (height, width); None: what the model wants
    skip_bad: bool = False
    device: str = "cpu"
    resume: bool = False
    minutes: float = 10.0  # between states that are kept
    logs: tuple[str, ...] | None = None  # None: TensorBoard, where it is installed
    command: str = ""


def train(
    job: Job,
    recipe: Recipe,
    *,
    progress: Progress | None = None,
    reading: Reading = _silent,
    loggers: Iterable[Logger] = (),
) -> History:
    """Train a model by a recipe; weights, state, history and recipe stand in the job's folder.

    Weights begin at random, unless the model names a checkpoint or pretrained ones are asked
    for. Pixels are standardised by the mean and deviation of the training images, or as such
    weights are used to. Images of up to 64 pixels a side are kept in memory.

    Raises:
        InputError: if a name is unknown, the model does not fit the data, or as `fit` says.
    """
    compute = Compute(job.device, recipe.precision)
    with processes(compute):
        found = _logs(job, recipe)
        network = _network(job, recipe)
        side = max(job.size or network.preprocessing.size)
        images = _training_images(job, recipe, side, reading)
        preprocessing = _preprocessing(job, network, images)
        shown = _test_batches(job, preprocessing, side, reading)
        teacher = load_model(job.teacher).model if job.teacher else None
        if rank() == 0:
            job.folder.mkdir(parents=True, exist_ok=True)
        save = partial(
            save_checkpoint,
            preprocessing=preprocessing,
            class_names=images.class_names,
            provenance=_facts(job, recipe, images, preprocessing),
        )
        everybody = [*found, *loggers]
        try:
            history = fit(
                network.model,
                _feed(images, preprocessing, recipe, compute),
                recipe,
                test=shown,
                folder=job.folder,
                resume=job.resume,
                progress=progress,
                teacher=teacher,
                loggers=everybody,
                device=job.device,
                minutes=job.minutes,
                save=save,
            )
        finally:
            for logger in everybody:
                logger.close()
        history = replace(history, provenance=_facts(job, recipe, images, preprocessing))
        if rank() == 0:
            history.save(job.folder / "history.npz")
            with written_whole(job.folder / "recipe.yaml") as scratch:
                scratch.write_text(as_yaml(recipe), encoding="utf-8")
    return history


def _logs(job: Job, recipe: Recipe) -> list[Logger]:
    return make_loggers(job.logs, job.folder, flat(recipe)) if rank() == 0 else []


def _network(job: Job, recipe: Recipe) -> LoadedModel:
    """The model, with the recipe's stochastic depth among its arguments."""
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


def _training_images(job: Job, recipe: Recipe, side: int, reading: Reading) -> ImageSet:
    images = load_data(
        job.data,
        split=job.split,
        skip_bad=job.skip_bad,
        limit=recipe.images,
        side=side,
        seed=recipe.seed,
        progress=partial(reading, label="reading images"),
    )
    if not 0 < job.subset <= 1:
        raise InputError(f"subset is {job.subset}; wants a part of the images, up to 1")
    if job.subset == 1:
        return images
    some = max(1, round(job.subset * len(images)))
    return images.subset(balanced(images.targets, some, seed=recipe.seed))


def _preprocessing(job: Job, network: LoadedModel, images: ImageSet) -> Preprocessing:
    """That of weights which have been trained; of random ones, the images' own statistics."""
    size = job.size or network.preprocessing.size
    if job.pretrained or "@" in job.model:
        return replace(network.preprocessing, size=size)
    return default_preprocessing(images, size)


def _test_batches(
    job: Job, preprocessing: Preprocessing, side: int, reading: Reading
) -> Iterable[tuple[Tensor, Tensor]] | None:
    """Images to evaluate on; None where the data has none but those that it trains on."""
    images = load_data(
        job.test or job.data,
        split=job.test_split,
        skip_bad=job.skip_bad,
        side=side,
        progress=partial(reading, label="reading test images"),
    )
    if not job.test and images.split == job.split:
        return None
    way = batches(images, preprocessing, _TOGETHER)
    return list(way) if max(preprocessing.size) <= _SMALL else way


def _feed(
    images: ImageSet, preprocessing: Preprocessing, recipe: Recipe, compute: Compute
) -> Feed:
    return memory_feed(
        images,
        preprocessing,
        recipe.batch_size,
        augmentation=recipe.augmentation,
        seed=recipe.seed,
        compute=compute,
    )


def _facts(
    job: Job, recipe: Recipe, images: ImageSet, preprocessing: Preprocessing
) -> Provenance:
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
