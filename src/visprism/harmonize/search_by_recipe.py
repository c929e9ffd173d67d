"""A search whose candidates are trained by a recipe, on data by name."""

from collections.abc import Callable
from dataclasses import asdict, replace

import torch
from torch import nn

from visprism.core.run import DEFAULT_RUN, Run
from visprism.harmonize.convert import MSAConfig
from visprism.harmonize.replacement_search import ReplacementSearch
from visprism.harmonize.search import search_replacements
from visprism.images import batches, held_out
from visprism.models import LoadedModel
from visprism.training import Job, Recipe, as_yaml, fit
from visprism.training.job import choose_preprocessing, prepare, training_feed

LOG = "search.jsonl"  # in the job's folder
VALIDATION = 0.1  # fraction of the training images of each class
_VALIDATION_BATCH = 250  # images


class RecipeTrainer:
    """Trains candidates by a recipe, and measures their accuracy on held-out images.

    A tenth of the training images of each class is the validation set; candidates are trained
    on the others.
    """

    def __init__(self, job: Job, recipe: Recipe, run: Run = DEFAULT_RUN) -> None:
        prepared = prepare(job, recipe, run)
        self.network, self.images = prepared.network, prepared.images
        self._training, validation = held_out(prepared.images, VALIDATION, seed=recipe.seed)
        self.preprocessing = choose_preprocessing(job, self.network, self._training)
        self._validation = list(batches(validation, self.preprocessing, _VALIDATION_BATCH))
        self._job, self._recipe, self._run = job, recipe, run
        self.provenance = replace(
            prepared.provenance,
            images=len(self._training),
            preprocessing=str(self.preprocessing),
        )

    def __call__(self, candidate: nn.Module, seed: int) -> float:
        """Train a candidate in place with a seed; returns its validation accuracy."""
        recipe = replace(self._recipe, seed=seed, snapshot_every=0)
        history = fit(
            candidate,
            training_feed(self._job, self._training, self.preprocessing, recipe, self._run),
            recipe,
            test=self._validation,
            run=replace(self._run, seed=seed),
        )
        candidate.cpu()
        return float(history.test_accuracy[-1])


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

    Candidates are trained by a `RecipeTrainer`. The log is `LOG` in the folder of the job. The
    recipe's seed is that of the first repeat.
    """
    trainer = RecipeTrainer(job, recipe, run)
    preprocessing = trainer.preprocessing
    height, width = preprocessing.size
    result = search_replacements(
        trainer.network.model,
        torch.zeros(2, 3, height, width),
        trainer,
        repeats=repeats,
        alpha=alpha,
        **asdict(msa or MSAConfig()),
        log=job.folder / LOG,
        settings={
            "data": trainer.images.name,
            "images": len(trainer.images),
            "recipe": as_yaml(recipe),
        },
        report=report,
        run=replace(run, seed=recipe.seed, provenance=trainer.provenance),
    )
    return result, replace(trainer.network, preprocessing=preprocessing)
