"""A search whose candidates are trained by a recipe, on data by name."""

from collections.abc import Callable
from dataclasses import asdict, replace

import torch
from torch import nn

from visprism.core.run import DEFAULT_RUN, Run
from visprism.data import batches, held_out
from visprism.harmonize.convert import MSAConfig
from visprism.harmonize.search import search_replacements
from visprism.models import LoadedModel
from visprism.results.harmonize import ReplacementSearch
from visprism.training import Job, Recipe, as_yaml, fit
from visprism.training.job import choose_preprocessing, prepare, training_feed

LOG = "search.jsonl"  # in the job's folder
VALIDATION = 0.1  # fraction of the training images of each class
_VALIDATION_BATCH = 250  # images


def search_by_recipe(
    job: Job,
    recipe: Recipe,
    *,
    msa: MSAConfig | None = None,
    repeats: int = 3,
    alpha: float = 0.05,
    report: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    run: Run = DEFAULT_RUN,
) -> tuple[ReplacementSearch, LoadedModel]:
    """Search for the Conv blocks that MSA blocks should replace; see `search_replacements`.

    A tenth of the training images of each class is the validation set; candidates are trained
    on the others. The log is ``search.jsonl`` in the job's folder.

    Args:
        job: names of model and data, and the folder.
        recipe: of every training; its seed is that of the first repeat.
        msa: heads and windows of the MSA blocks.
        repeats: as in `search_replacements`.
        alpha: as in `search_replacements`.
        report: as in `search_replacements`.
        run: device, progress, deadline and command.

    Raises:
        InputError: as `search_replacements` and `fit`.
    """
    prepared = prepare(job, recipe, run)
    training, validation = held_out(prepared.images, VALIDATION, seed=recipe.seed)
    preprocessing = choose_preprocessing(job, prepared.network, training)
    validation_batches = list(batches(validation, preprocessing, _VALIDATION_BATCH))

    def train(candidate: nn.Module, seed: int) -> float:
        seeded = replace(recipe, seed=seed, snapshot_every=0)
        history = fit(
            candidate,
            training_feed(job, training, preprocessing, seeded, run),
            seeded,
            test=validation_batches,
            run=replace(run, seed=seed),
        )
        candidate.cpu()
        return float(history.test_accuracy[-1])

    provenance = replace(
        prepared.provenance, images=len(training), preprocessing=str(preprocessing)
    )
    height, width = preprocessing.size
    result = search_replacements(
        prepared.network.model,
        torch.zeros(2, 3, height, width),
        train,
        repeats=repeats,
        alpha=alpha,
        **asdict(msa or MSAConfig()),
        log=job.folder / LOG,
        settings={
            "data": prepared.images.name,
            "images": len(prepared.images),
            "recipe": as_yaml(recipe),
        },
        report=report,
        run=replace(run, seed=recipe.seed, provenance=provenance),
    )
    return result, replace(prepared.network, preprocessing=preprocessing)
