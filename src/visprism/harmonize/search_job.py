"""Job: a search whose candidates are trained by a recipe, on data by name."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from visprism.data import batches, held_out
from visprism.harmonize.search import ReplacementSearch, Shown, search_replacements
from visprism.models import LoadedModel
from visprism.training import Job, Recipe, as_yaml, fit
from visprism.training.job import (
    Reading,
    feed_of,
    network_of,
    preprocessing_of,
    result_fields,
    training_images,
)
from visprism.training.loop import Progress

LOG = "search.jsonl"  # in the job's folder
VALIDATION = 0.1  # of the training images of each class
_TOGETHER = 250  # images of a batch in validation


@dataclass(frozen=True)
class Shape:
    """What the MSA blocks are like; see `harmonize`."""

    heads: int | tuple[int, ...] | None = None
    head_dim: int = 64
    window: int | None = None


def search(
    job: Job,
    recipe: Recipe,
    *,
    shape: Shape,
    repeats: int = 3,
    progress: Progress | None = None,
    reading: Reading,
    shown: Shown | None = None,
) -> tuple[ReplacementSearch, LoadedModel]:
    """Find the Conv blocks of a model that MSAs should replace; see `search_replacements`.

    Candidates are trained on the training images less a tenth of each class, which are the
    validation. The log stands in the job's folder as ``search.jsonl``.

    Raises:
        InputError: as `search_replacements` and `fit`.
    """
    network = network_of(job, recipe)
    side = max(job.size or network.preprocessing.size)
    images = training_images(job, recipe, side, reading)
    kept, validation = held_out(images, VALIDATION, seed=recipe.seed)
    preprocessing = preprocessing_of(job, network, kept)
    shown_batches = list(batches(validation, preprocessing, _TOGETHER))

    def train(candidate: nn.Module, seed: int) -> float:
        own = replace(recipe, seed=seed, snapshots=0)  # only what it comes to is kept
        history = fit(
            candidate,
            feed_of(job, kept, preprocessing, own),
            own,
            test=shown_batches,
            progress=progress,
            device=job.device,
        )
        candidate.cpu()
        return float(history.test_accuracy[-1])

    height, width = preprocessing.size
    found = search_replacements(
        network.model,
        torch.zeros(2, 3, height, width),
        train,
        repeats=repeats,
        heads=shape.heads,
        head_dim=shape.head_dim,
        window=shape.window,
        seed=recipe.seed,
        log=job.folder / LOG,
        setting={"data": images.name, "images": len(images), "recipe": as_yaml(recipe)},
        shown=shown,
        provenance=result_fields(job, recipe, kept, preprocessing),
    )
    return found, replace(network, preprocessing=preprocessing)
