"""Training jobs: a model and data by name, trained by a recipe into a folder."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from visprism.anatomy.trace.forward import errors_of_model, forward
from visprism.core.errors import InputError
from visprism.core.loggers import Logger, make_loggers
from visprism.core.preprocessing import Preprocessing
from visprism.core.processes import processes, rank
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.images.batches import batches
from visprism.images.image_set import ImageSet, NoSplitsError, statistics, stratified
from visprism.images.images import common_size
from visprism.images.open_data import load_data
from visprism.images.training_batches import Feed, loader_feed, memory_feed
from visprism.models.checkpoints import save_checkpoint
from visprism.models.loading import LoadedModel, load_model
from visprism.models.pretrained import names_weights
from visprism.training.history import History
from visprism.training.loop import Watch, fit
from visprism.training.recipe import Recipe, recipe_fields

_SMALL = 64  # pixels: images with longer sides are not cached in memory
_TEST_BATCH = 250  # images


@dataclass(frozen=True)
class Job:
    """What to train on which data, and where to store it."""

    model: str  # as `load_model` takes it
    data: str  # as `load_data` takes it
    folder: Path
    split: str | None = None  # None: "train", or all images of data without splits
    test_data: str = ""  # data of the evaluation; empty: the same data
    test_split: str | None = None
    test_limit: int | None = None  # largest number of test images; None: all
    subset: float = 1.0  # fraction of the training images of each class
    teacher: str = ""
    pretrained: bool = False
    size: tuple[int, int] | None = None  # (height, width); None: the model's
    skip_bad: bool = False
    workers: int = 4  # processes that decode images with sides over 64 pixels, or RandAugment
    sharded: bool = False
    watch_average: bool = False  # whether `watch` measures the averaged weights of the recipe
    resume: bool = False
    checkpoint_minutes: float = 10.0  # between training checkpoints
    logs: tuple[str, ...] | None = None  # None: TensorBoard if it is installed

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))


@dataclass(frozen=True)
class Prepared:
    """The model and the training images of a job."""

    network: LoadedModel
    images: ImageSet
    preprocessing: Preprocessing
    provenance: Provenance


# Makes a monitor of the model, test images (or else training images), and loggers.
Watching = Callable[[Prepared, ImageSet, Sequence[Logger]], Watch]


def train(
    job: Job,
    recipe: Recipe,
    *,
    loggers: Iterable[Logger] = (),
    watch: Watching | None = None,
    run: Run = DEFAULT_RUN,
) -> History:
    """Train a model by a recipe, and write weights, history and recipe to the job's folder.

    Weights are random unless the model names a checkpoint or `pretrained` is set. Images of up
    to 64 pixels a side are cached in memory. With random weights they are normalized by their
    own mean and standard deviation, otherwise by the model's.

    `loggers` receive the loss and the history, as the loggers of the job do. `watch` makes what
    is called after each update, as a `Monitor`. Precision and seed
    of `run` are the recipe's; its device is the accelerator unless one is named.
    """
    run = replace(run, compute=replace(run.compute, device=str(run.compute.torch_device)))
    if job.folder.exists() and not job.folder.is_dir():
        raise InputError(f"folder must be a directory, got the file {job.folder}")
    with processes(run.compute):
        fields = recipe_fields(recipe)
        own = make_loggers(job.logs, job.folder, fields) if rank() == 0 else []
        teacher = _teacher(job)
        prepared = prepare(job, recipe, run)
        preprocessing = prepared.preprocessing
        test = test_images(job, prepared.images, max(preprocessing.size), run)
        save = partial(
            save_checkpoint,
            preprocessing=preprocessing,
            class_names=prepared.images.class_names,
            provenance=prepared.provenance,
        )
        all_loggers: list[Logger] = [*own, *loggers]
        to_close: list[Any] = [*all_loggers]
        try:
            monitor = None
            if watch is not None:
                monitor = watch(prepared, test or prepared.images, all_loggers)
                to_close = [monitor]  # it ends its loggers
            return fit(
                prepared.network.model,
                training_feed(job, prepared.images, preprocessing, recipe, run),
                recipe,
                test=None if test is None else test_batches(test, preprocessing),
                folder=job.folder,
                resume=job.resume,
                teacher=teacher,
                loggers=all_loggers,
                monitor=monitor,
                watch_average=job.watch_average,
                sharded=job.sharded,
                checkpoint_minutes=job.checkpoint_minutes,
                save=save,
                names={
                    "model": job.model,
                    "data": prepared.images.name,
                    "test data": "none" if test is None else f"{test.name}, {len(test)} images",
                    "teacher": job.teacher,
                    "preprocessing": str(preprocessing),
                },
                run=replace(run, provenance=prepared.provenance),
            )
        finally:
            for one in to_close:
                one.close()


def prepare(job: Job, recipe: Recipe, run: Run = DEFAULT_RUN) -> Prepared:
    """Load the model and the training images, and choose the preprocessing."""
    network = build_network(job, recipe)
    size = job.size or (network.preprocessing.size if network.preprocessing_stated else None)
    accept = None if size is None else partial(_check_classes, job, network, size)
    images = training_images(job, recipe, None if size is None else max(size), run, accept)
    if size is None:
        size = common_size(images)
        _check_classes(job, network, size, images)
        network = replace(network, preprocessing=replace(network.preprocessing, size=size))
    preprocessing = choose_preprocessing(job, network, images)
    provenance = replace(
        run.provenance,
        model=job.model.partition("@")[0],
        data=images.name,
        split=images.split,
        images=len(images),
        image_shape=(3, *preprocessing.size),
        batch_size=recipe.batch_size,
        preprocessing=str(preprocessing),
        precision=recipe.precision,
        device=str(run.compute.torch_device),
        seed=recipe.seed,
        created=datetime.now(UTC).date().isoformat(),
    )
    return Prepared(network, images, preprocessing, provenance)


def build_network(job: Job, recipe: Recipe) -> LoadedModel:
    """The model, with the recipe's stochastic depth among its options."""
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
            f"drop_path must be 0 for {job.model}, which has no stochastic depth, got "
            f"{recipe.drop_path}"
        ) from error


def training_images(
    job: Job,
    recipe: Recipe,
    side: int | None,
    run: Run = DEFAULT_RUN,
    accept: Callable[[ImageSet], None] | None = None,
) -> ImageSet:
    """The training images; `accept` receives them before their files are read."""
    load = partial(
        load_data,
        job.data,
        skip_bad=job.skip_bad,
        limit=recipe.limit,
        side=side,
        seed=recipe.seed,
        progress=run.track,
        accept=accept,
    )
    try:
        images = load(split=job.split or "train")
    except NoSplitsError:
        if job.split is not None:
            raise
        images = load(split=None)
    return images if job.subset == 1 else stratified(images, job.subset, seed=recipe.seed)


def choose_preprocessing(job: Job, network: LoadedModel, images: ImageSet) -> Preprocessing:
    """The model's; with random weights, small images are normalized by their own mean."""
    preprocessing = network.preprocessing
    if job.size:
        preprocessing = replace(preprocessing, size=job.size, crop=1.0)
    if job.pretrained or names_weights(job.model) or max(preprocessing.size) > _SMALL:
        return replace(preprocessing, stated=True)  # in the checkpoint
    mean, std = statistics(images)
    nonzero_std = tuple(value or 1.0 for value in std)  # 0: a constant channel
    return replace(preprocessing, mean=mean, std=nonzero_std, stated=True)


def test_images(job: Job, train: ImageSet, side: int, run: Run) -> ImageSet | None:
    """The test images; None if the data has no others than the training images."""
    num_classes = train.num_classes

    def accept(images: ImageSet) -> None:
        if images.targets.min() < 0:
            raise InputError(
                f"test images must have labels, got none in {images.name}. Choose a split with "
                "labels."
            )
        named = images.class_names and train.class_names
        if images.num_classes > num_classes or (named and images.num_classes < num_classes):
            raise InputError(
                f"test images must have the {num_classes} classes of the training images, got "
                f"{images.num_classes} of {images.name}"
            )

    images = load_data(
        job.test_data or job.data,
        split=job.test_split,
        limit=job.test_limit,
        skip_bad=job.skip_bad,
        side=side,
        progress=run.track,
        accept=accept,
    )
    return None if not job.test_data and images.split == train.split else images


def test_batches(
    images: ImageSet, preprocessing: Preprocessing
) -> Iterable[tuple[Tensor, Tensor]]:
    """Batches of preprocessed images, cached in memory if they are small."""
    prepared = batches(images, preprocessing, _TEST_BATCH)
    return list(prepared) if max(preprocessing.size) <= _SMALL else prepared


def training_feed(
    job: Job, images: ImageSet, preprocessing: Preprocessing, recipe: Recipe, run: Run
) -> Feed:
    """A feed from memory for small images, and from files for large ones."""
    options: dict[str, Any] = {
        "augmentation": recipe.augmentation,
        "seed": recipe.seed,
        "compute": replace(run.compute, precision=recipe.precision),
    }
    if max(preprocessing.size) > _SMALL:
        options["workers"] = job.workers
        return loader_feed(images, preprocessing, recipe.batch_size, **options)
    if recipe.augmentation.rand_augment:  # of what is done in memory, only this takes long
        options["workers"] = job.workers
    return memory_feed(images, preprocessing, recipe.batch_size, **options)


def _teacher(job: Job) -> nn.Module | None:
    if not job.teacher:
        return None
    loaded = load_model(job.teacher)
    if not loaded.trained:
        raise InputError(
            f"teacher must have trained weights, got {job.teacher} with random weights. Name a "
            "checkpoint, as MODEL@FILE."
        )
    return loaded.model


def _check_classes(
    job: Job, network: LoadedModel, size: tuple[int, int], images: ImageSet
) -> None:
    """Require one logit per class of the images, tested on an image of zeros."""
    zeros = torch.zeros(1, 3, *size)
    with errors_of_model(network.model, zeros), torch.no_grad():
        logits = forward(network.model, zeros)
    if images.num_classes and logits.shape[1:] != (images.num_classes,):
        raise InputError(
            f"the model's output must be one logit per class of {images.name} "
            f"({images.num_classes}), got shape {tuple(logits.shape)}. Name the model as "
            f"{_with_classes(job.model, images.num_classes)}."
        )


def _with_classes(model: str, num_classes: int) -> str:
    """The model's name with this number of classes, and without its checkpoint."""
    name, _, arguments = model.partition("@")[0].partition("?")
    others = [a for a in arguments.split("&") if a and not a.startswith("num_classes=")]
    return f"{name}?{'&'.join([*others, f'num_classes={num_classes}'])}"
