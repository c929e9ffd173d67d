"""Running: a job done by a recipe, and kept in its folder."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from visprism.errors import InputError
from visprism.models import load_model, save_checkpoint
from visprism.parallel import Compute, processes, rank
from visprism.result import written_whole
from visprism.training.distillation import OtherClassesError
from visprism.training.following import Logger, make_loggers
from visprism.training.history import History
from visprism.training.job import (
    Job,
    Reading,
    facts_of,
    feed_of,
    network_of,
    preprocessing_of,
    test_batches,
    training_images,
)
from visprism.training.loop import Progress, fit
from visprism.training.recipe import Recipe
from visprism.training.settings import as_yaml, flat


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
        network = network_of(job, recipe)
        side = max(job.size or network.preprocessing.size)
        images = training_images(job, recipe, side, reading)
        preprocessing = preprocessing_of(job, network, images)
        shown = test_batches(job, preprocessing, images.num_classes, side, reading)
        teacher = load_model(job.teacher).model if job.teacher else None
        if rank() == 0:
            job.folder.mkdir(parents=True, exist_ok=True)
        save = partial(
            save_checkpoint,
            preprocessing=preprocessing,
            class_names=images.class_names,
            provenance=facts_of(job, recipe, images, preprocessing),
        )
        everybody = [*found, *loggers]
        try:
            history = fit(
                network.model,
                feed_of(job, images, preprocessing, recipe),
                recipe,
                test=shown,
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
                    "test data": job.test or job.data,
                    "teacher": job.teacher,
                    "preprocessing": str(preprocessing),
                },
            )
        except OtherClassesError as error:
            way_out = _with_classes(job.model, images.num_classes)
            raise InputError(f"{error}, such as {way_out!r}") from error
        finally:
            for logger in everybody:
                logger.close()
        history = replace(history, provenance=facts_of(job, recipe, images, preprocessing))
        if rank() == 0:
            history.save(job.folder / "history.npz")
            with written_whole(job.folder / "recipe.yaml") as scratch:
                scratch.write_text(as_yaml(recipe), encoding="utf-8")
    return history


def _with_classes(model: str, classes: int) -> str:
    """The model as it was named, of so many classes and without a checkpoint of others."""
    name, _, arguments = model.partition("@")[0].partition("?")
    kept = [a for a in arguments.split("&") if a and not a.startswith("num_classes=")]
    return f"{name}?{'&'.join([*kept, f'num_classes={classes}'])}"


def _logs(job: Job, recipe: Recipe) -> list[Logger]:
    return make_loggers(job.logs, job.folder, flat(recipe)) if rank() == 0 else []
