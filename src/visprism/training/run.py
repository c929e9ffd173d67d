"""CumulativeSums: a job done by a recipe, and kept in its folder."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from visprism.anatomy import forward
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.processes import processes, rank
from visprism.data import ImageSet
from visprism.models import LoadedModel, load_model, save_checkpoint
from visprism.models.sources import RANDOM
from visprism.training.distillation import both
from visprism.training.history import History
from visprism.training.job import (
    Job,
    Reading,
    feed_of,
    network_of,
    preprocessing_of,
    result_fields,
    test_batches,
    test_images,
    training_images,
)
from visprism.training.loggers import Logger, make_loggers
from visprism.training.loop import Progress, fit
from visprism.training.optimizers import check_optimizer
from visprism.training.recipe import Recipe
from visprism.training.settings import flat


def _silent(items: Iterable, label: str) -> Iterable:  # noqa: ARG001 (`Reading` takes it)
    return items


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
    for. Images of up to 64 pixels a side are kept in memory; where weights begin at random,
    they are standardised by their own mean and deviation, and otherwise as the model has it.

    Raises:
        InputError: if a name is unknown, the model does not fit the data, or as `fit` says.
    """
    compute = Compute(job.device, recipe.precision)
    if job.folder.exists() and not job.folder.is_dir():
        raise InputError(f"{job.folder} is a file; name a folder to keep the run in")
    with processes(compute):
        found = _logs(job, recipe)
        check_optimizer(recipe, compute)
        teacher = _teacher(job)
        network = network_of(job, recipe)
        side = max(job.size or network.preprocessing.size)
        accept = partial(_accept, job, network)
        images = training_images(job, recipe, side, reading, accept)
        preprocessing = preprocessing_of(job, network, images)
        shown = test_images(job, images, side, reading)
        save = partial(
            save_checkpoint,
            preprocessing=preprocessing,
            class_names=images.class_names,
            provenance=result_fields(job, recipe, images, preprocessing),
        )
        everybody = [*found, *loggers]
        try:
            history = fit(
                network.model,
                feed_of(job, images, preprocessing, recipe),
                recipe,
                test=None if shown is None else test_batches(shown, preprocessing),
                folder=job.folder,
                resume=job.resume,
                progress=progress,
                teacher=teacher,
                loggers=everybody,
                device=job.device,
                sharded=job.sharded,
                minutes=job.minutes,
                save=save,
                named={
                    "model": job.model,
                    "data": images.name,
                    "test data": _named(shown),
                    "teacher": job.teacher,
                    "preprocessing": str(preprocessing),
                },
            )
        finally:
            for logger in everybody:
                logger.close()
        history = replace(history, provenance=result_fields(job, recipe, images, preprocessing))
        if rank() == 0:
            history.save(job.folder / "history.npz")
    return history


def _named(images: ImageSet | None) -> str:
    return "none" if images is None else f"{images.name}, {len(images)} images"


def _teacher(job: Job) -> nn.Module | None:
    if not job.teacher:
        return None
    loaded = load_model(job.teacher)
    if loaded.name.endswith(f"({RANDOM})"):
        raise InputError(
            f"the teacher {job.teacher} has random weights; name a checkpoint of it, as "
            "MODEL@FILE"
        )
    return loaded.model


def _accept(job: Job, network: LoadedModel, images: ImageSet) -> None:
    """The model gives a logit for each class of the images, as far as zeros show."""
    height, width = job.size or network.preprocessing.size
    with torch.no_grad():
        logits, _ = both(forward(network.model, torch.zeros(1, 3, height, width)))
    if images.num_classes and logits.shape[1:] != (images.num_classes,):
        raise InputError(
            f"the model gives {tuple(logits.shape)} for an image and {images.name} has "
            f"{images.num_classes} classes; wants one logit for each class, such as "
            f"{_with_classes(job.model, images.num_classes)!r}"
        )


def _with_classes(model: str, classes: int) -> str:
    """The model as it was named, of so many classes and without a checkpoint of others."""
    name, _, arguments = model.partition("@")[0].partition("?")
    kept = [a for a in arguments.split("&") if a and not a.startswith("num_classes=")]
    return f"{name}?{'&'.join([*kept, f'num_classes={classes}'])}"


def _logs(job: Job, recipe: Recipe) -> list[Logger]:
    return make_loggers(job.logs, job.folder, flat(recipe)) if rank() == 0 else []
