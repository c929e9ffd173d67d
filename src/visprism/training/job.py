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
from visprism.images.image_set import (
    ImageSet,
    NoSplitsError,
    held_out,
    statistics,
    stratified,
)
from visprism.images.images import common_size
from visprism.images.open_data import load_data
from visprism.images.training_batches import Feed, loader_feed, memory_feed
from visprism.models.checkpoints import save_checkpoint
from visprism.models.loading import LoadedModel, load_model, model_name
from visprism.models.pretrained import names_weights
from visprism.training.history import History
from visprism.training.loop import Watch, fit
from visprism.training.optimizers import freeze
from visprism.training.recipe import Recipe, recipe_fields

_SMALL = 64  # pixels: images with longer sides are not cached in memory
_TEST_BATCH = 250  # images
_VALIDATION = 0.1  # of the training images, where there are no others to evaluate on


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
    # Fraction of the training images of each class that replaces the test images; None: 0.1
    # where the data has no test split.
    validation: float | None = None
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

    name: str  # of the network, which a checkpoint names
    begin: str  # where the weights come from, and which ones are new
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
    say: Callable[[str], object] = str,
    run: Run = DEFAULT_RUN,
) -> History:
    """Train a model by a recipe, and write weights, history and recipe to the job's folder.

    Weights are random unless the model names a checkpoint, or the job or the recipe asks for
    published ones. If the data has another number of classes than the model, and its name does
    not state the number, the last layer gets random weights. Images of up to 64 pixels a side
    are cached in memory. With random weights they are normalized by their own mean and standard
    deviation, otherwise by the model's.

    The network is evaluated after each epoch on the test images, or on a part of the training
    images that is held out, which selects ``best.safetensors`` and ends a training early if the
    recipe has `patience`. `say` is called with sentences on what trains and is evaluated.

    `loggers` receive the loss and the history, as the loggers of the job do. `watch` makes what
    is called after each update, as a `Monitor`. Precision and seed
    of `run` are the recipe's; its device is the accelerator unless one is named.
    """
    run = replace(run, compute=replace(run.compute, device=str(run.compute.torch_device)))
    if job.folder.exists() and not job.folder.is_dir():
        raise InputError(f"folder must be a directory, got the file {job.folder}")
    if recipe.limit is not None and recipe.limit < recipe.batch_size:
        raise InputError(
            f"limit must be at least batch_size ({recipe.batch_size}), got {recipe.limit}"
        )
    with processes(run.compute):
        fields = recipe_fields(recipe)
        own = make_loggers(job.logs, job.folder, fields) if rank() == 0 else []
        teacher = _teacher(job)
        prepared = prepare(job, recipe, run)
        preprocessing = prepared.preprocessing
        test = None
        if job.validation is None:
            test = test_images(job, prepared.images, max(preprocessing.size), run)
        if test is None:
            prepared, test, held = _validated(job, prepared, recipe.seed)
            say(held)
        say(f"{prepared.begin}; {_trainable(prepared.network.model, recipe)}")
        if recipe.precision == "bf16" and _without_bf16(run.compute.torch_device):
            say("this CPU has no instructions for bf16: fp32 is several times faster")
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
                    "model": prepared.name,
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
    name = model_name(job.model)
    network, begin = build_network(job, recipe), ""
    size = job.size or (network.preprocessing.size if network.preprocessing_stated else None)

    def accept(images: ImageSet) -> None:
        nonlocal name, network, begin
        if size is not None:
            name, network, begin = _of_classes(job, recipe, network, size, images)

    images = training_images(job, recipe, None if size is None else max(size), run, accept)
    if size is None:
        size = common_size(images)
        name, network, begin = _of_classes(job, recipe, network, size, images)
        network = replace(network, preprocessing=replace(network.preprocessing, size=size))
    preprocessing = choose_preprocessing(job, recipe, network, images)
    provenance = replace(
        run.provenance,
        model=name.partition("@")[0],
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
    return Prepared(name, begin, network, images, preprocessing, provenance)


def build_network(job: Job, recipe: Recipe) -> LoadedModel:
    """The model, with the recipe's stochastic depth among its options."""
    name, at, checkpoint = model_name(job.model).partition("@")
    rate = f"drop_path_rate={recipe.drop_path}"
    if recipe.drop_path and "drop_path_rate" not in name:
        name += f"{'&' if '?' in name else '?'}{rate}"
    pretrained = job.pretrained or recipe.pretrained
    try:
        text = f"{name}{at}{checkpoint}"
        return load_model(text, pretrained=pretrained, seed=recipe.seed)
    except InputError as error:
        if not (recipe.drop_path and "drop_path_rate" in str(error)):
            raise
        raise InputError(
            f"drop_path must be 0 for {job.model}, which has no stochastic depth, got "
            f"{recipe.drop_path}. Add --set drop_path=0, or replace(drop_path=0) in Python."
        ) from error


def _of_classes(
    job: Job, recipe: Recipe, network: LoadedModel, size: tuple[int, int], images: ImageSet
) -> tuple[str, LoadedModel, str]:
    """The model with one logit for each class of the images, its name, and where it begins.

    A model of another number of classes is built with this number, and gets all weights that
    fit it.
    """
    name, number = model_name(job.model), images.num_classes
    zeros = torch.zeros(1, 3, *size)
    with errors_of_model(network.model, zeros), torch.no_grad():
        logits = forward(network.model, zeros)
    begin = f"starts from {network.name if network.trained else 'random weights'}"
    if not number or logits.shape[1:] == (number,):
        return name, network, begin
    other = _with_classes(name, number)
    fault = (
        f"the model's output must be one logit per class of {images.name} ({number}), got "
        f"shape {tuple(logits.shape)}. Name the model as {other}."
    )
    if logits.ndim != 2 or "num_classes=" in job.model:
        raise InputError(fault)
    try:
        fresh = build_network(
            replace(job, model=other, pretrained=False), replace(recipe, pretrained=False)
        ).model
    except InputError as error:
        raise InputError(fault) from error
    before, now = network.model.state_dict(), fresh.state_dict()
    kept = {n: t for n, t in before.items() if n in now and now[n].shape == t.shape}
    if network.trained:
        fresh.load_state_dict(kept, strict=False)
        new = ", ".join(n for n in now if n not in kept)
        begin += f"; new: {new} ({logits.shape[1]} classes before, {number} now)"
    if network.preprocessing_stated:
        fresh.preprocessing = network.preprocessing  # pyrefly: ignore (the module states it)
    return other, replace(network, model=fresh), begin


def _validated(
    job: Job, prepared: Prepared, seed: int
) -> tuple[Prepared, ImageSet | None, str]:
    """A part of the training images for validation, if the job or the data needs one."""
    fraction = _VALIDATION if job.validation is None else job.validation
    if fraction == 0:
        return prepared, None, "no image is held out, and no epoch is evaluated"
    try:
        training, test = held_out(prepared.images, fraction, seed=seed)
    except InputError:
        if job.validation is not None:
            raise
        few = "no image is held out, since some class has too few, and no epoch is evaluated"
        return prepared, None, few
    provenance = replace(prepared.provenance, images=len(training))
    held = (
        f"{len(test)} images, {fraction:.0%} of each class by seed {seed}, are held out: their "
        "accuracy selects best.safetensors"
    )
    kept = replace(prepared, images=training, provenance=provenance)
    return kept, replace(test, split="validation"), held


def _trainable(model: nn.Module, recipe: Recipe) -> str:
    """How many parameters train."""
    freeze(model, recipe.freeze)
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    number, total = sum(n for n, trains in sizes if trains), sum(n for n, _ in sizes)
    return f"{number:,} of {total:,} parameters train"


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


def choose_preprocessing(
    job: Job, recipe: Recipe, network: LoadedModel, images: ImageSet
) -> Preprocessing:
    """The model's; with random weights, small images are normalized by their own mean."""
    preprocessing = network.preprocessing
    if job.size:
        preprocessing = replace(preprocessing, size=job.size, crop=1.0)
    stated = job.pretrained or recipe.pretrained or names_weights(model_name(job.model))
    if stated or max(preprocessing.size) > _SMALL:
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


def _without_bf16(device: torch.device) -> bool:
    """Whether the device is a CPU that states its instructions, and none is for bf16."""
    flags = Path("/proc/cpuinfo")
    if device.type != "cpu" or not flags.is_file():
        return False
    text = flags.read_text("utf-8", errors="replace")
    return "avx2" in text and not ("avx512_bf16" in text or "amx_bf16" in text)


def _with_classes(model: str, num_classes: int) -> str:
    """The model's name with this number of classes, without its checkpoint or tag."""
    name, _, arguments = model.partition("@")[0].partition("?")
    if ":" not in name:  # of the zoo, where a tag names weights
        name = name.partition(".")[0]
    others = [a for a in arguments.split("&") if a and not a.startswith("num_classes=")]
    return f"{name}?{'&'.join([*others, f'num_classes={num_classes}'])}"
