"""Search for the Conv blocks of a CNN that MSA blocks should replace."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, SupportsFloat

import msgspec
import numpy as np
import torch
from torch import nn

from visprism.anatomy.trace.forward import Images
from visprism.core.errors import InputError
from visprism.core.files import exists, not_written, read_json, write_text
from visprism.core.provenance import fingerprint
from visprism.core.run import DEFAULT_RUN, Run
from visprism.harmonize.blocks import conv_blocks
from visprism.harmonize.convert import MSAConfig, harmonize_model
from visprism.harmonize.replacement_search import (
    CONFIRMATION,
    SEARCH,
    ReplacementSearch,
    paired_gain,
    t_tail,
)
from visprism.images.batches import batches
from visprism.images.image_set import held_out
from visprism.models.loading import LoadedModel
from visprism.training.job import Job, choose_preprocessing, prepare, training_feed
from visprism.training.loop import fit
from visprism.training.recipe import Recipe, as_yaml

Train = Callable[[nn.Module, int], float]  # candidate and seed -> validation accuracy
Blocks = tuple[str, ...]  # names of replaced blocks, in forward order
_Row = tuple[int, Blocks, str, int, float, bool, str]


def search_replacements(
    model: nn.Module,
    images: Images,
    train: Train,
    *,
    repeats: int = 3,
    alpha: float = 0.05,
    heads: int | Sequence[int] | None = None,
    head_dim: int = 64,
    window: int | None = None,
    log: Path | str | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
    report: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    run: Run = DEFAULT_RUN,
) -> ReplacementSearch:
    """Search for the Conv blocks that MSA blocks should replace, by the paper's rule.

    From the end of the last stage, an MSA block replaces the last Conv block, then every second
    block before it. A candidate is trained with the seeds of the one before, and its last block
    is selected if a one-sided paired t-test finds a gain in accuracy: mean(d) > t s / sqrt(n)
    for the differences d of n seeds, with t the 1 - `alpha` quantile of Student's distribution
    with n - 1 degrees of freedom. Otherwise the search continues at the end of the stage
    before. A block without effect is selected with probability `alpha`; where no block has an
    effect, at least one is with 1 - (1 - `alpha`)^stages.

    The runs that select a network overestimate its gain. If a block was selected, the CNN and
    the selected network are therefore trained again with `repeats` new seeds, which give the
    reported gain.

    Costs `repeats` trainings for the CNN and each candidate (at most half the blocks plus one
    per stage), and 2 `repeats` for the confirmation.

    Args:
        model: a CNN with residual blocks, in evaluation mode; candidates start from its
            weights, and it is not changed.
        images: a few, of the size of the model's input.
        train: trains a model in place with a seed and returns its validation accuracy.
        repeats: number of seeds, at least 2. With 3, a gain must exceed 2.9 standard errors
            for the default `alpha`; with 5, 2.1.
        alpha: significance level of the test of each candidate, in (0, 0.5].
        heads: as in `harmonize_model`.
        head_dim: as in `harmonize_model`.
        window: as in `harmonize_model`.
        log: file of all accuracies so far, from which an interrupted search is resumed.
        settings: what the accuracies depend on besides, such as the recipe; a log of other
            settings is refused.
        report: receives a sentence before each training and after each test.
        run: seed of the first repeat, and provenance. `train` has its own device and progress.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.1 and fig. 11.
    """
    if repeats < 2:
        raise InputError(
            f"repeats must be at least 2, got {repeats}: the variance between seeds must be "
            "estimated"
        )
    blocks = conv_blocks(model, images)
    stage_of = {block.name: block.stage for block in blocks}
    order = list(stage_of)
    stages = [
        [name for name in order if stage_of[name] == stage]
        for stage in sorted(set(stage_of.values()))
    ]
    msa = {"heads": heads, "head_dim": head_dim, "window": window}
    stored = SearchLog(log, model, {**msa, **settings})

    def converted(names: Blocks, seed: int) -> nn.Module:
        return harmonize_model(
            model, images, names, heads=heads, head_dim=head_dim, window=window, seed=seed
        )

    def accuracies(names: Blocks, seeds: Iterable[int]) -> np.ndarray:
        values = []
        for seed in seeds:
            run.check_time()
            accuracy = stored.find(names, seed)
            if accuracy is None:
                report(f"training {_words(names)}, seed {seed}")
                accuracy = stored.append(names, seed, train(converted(names, seed), seed))
            values.append(accuracy)
        return np.array(values)

    seeds = range(run.seed, run.seed + repeats)
    new_seeds = range(run.seed + repeats, run.seed + 2 * repeats)
    current: Blocks = ()
    current_accuracy = accuracies(current, seeds)
    candidates = [(current, "", current_accuracy, True)]
    for stage in reversed(stages):
        for name in stage[::-2]:
            names = tuple(sorted((*current, name), key=order.index))
            accuracy = accuracies(names, seeds)
            gain, error = paired_gain(current_accuracy, accuracy)
            significant = is_significant(gain, error, repeats, alpha)
            candidates.append((names, name, accuracy, significant))
            verdict = "selected" if significant else "not significant"
            report(
                f"{_words(names)}: gain {100 * gain:+.2f} percentage points, standard error "
                f"{100 * error:.2f}, {verdict}"
            )
            if not significant:
                break
            current, current_accuracy = names, accuracy
    rows: list[_Row] = [
        (number, names, name, seed, value, significant, SEARCH)
        for number, (names, name, accuracy, significant) in enumerate(candidates)
        for seed, value in zip(seeds, accuracy, strict=True)
    ]
    if current:
        final = max(n for n, (names, *_) in enumerate(candidates) if names == current)
        rows += [
            (number, names, candidates[number][1], seed, value, True, CONFIRMATION)
            for number, names in ((0, ()), (final, current))
            for seed, value in zip(new_seeds, accuracies(names, new_seeds), strict=True)
        ]
    number, names, added, seed, value, significant, phase = zip(*rows, strict=True)
    return ReplacementSearch(
        candidate=np.array(number),
        msas=np.array([len(replaced) for replaced in names]),
        added=np.array(added),
        placement=np.array([",".join(replaced) for replaced in names]),
        seed=np.array(seed),
        accuracy=np.array(value),
        selected=np.array(significant),
        phase=np.array(phase),
        alpha=alpha,
        provenance=run.provenance,
    )


class _Training(msgspec.Struct):
    placement: Blocks
    seed: int
    accuracy: Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Log(msgspec.Struct):
    identity: dict[str, Any]
    values: list[_Training]


class SearchLog:
    """The accuracies of a search in a JSON file, which is written whole after each training.

    Its identity is `model`, with which the search starts, and `settings`, on which the
    accuracies depend.
    """

    def __init__(
        self, path: Path | str | None, model: nn.Module, settings: Mapping[str, object]
    ) -> None:
        self.path = path = None if path is None else Path(path)
        state = model.state_dict()
        digest = f"{type(model).__name__} {' '.join(state)} {fingerprint(state.values())}"
        identity = {"model": digest, **json.loads(json.dumps(dict(settings), default=int))}
        self._log = _Log(identity, [])
        if path is not None and exists(path):
            self._log = read_json(path, _Log, "the log of a search")
            stored = self._log.identity
            different = [name for name in identity if stored.get(name) != identity[name]]
            if different:
                raise InputError(
                    f"{path} is the log of another search (different {', '.join(different)}). "
                    "Resume it with the same settings, delete it, or name another file."
                )
        self._write()

    def find(self, names: Sequence[str], seed: int) -> float | None:
        """The stored accuracy, or None."""
        key = tuple(names), seed
        found = (v.accuracy for v in self._log.values if (v.placement, v.seed) == key)
        return next(found, None)

    def append(self, names: Sequence[str], seed: int, accuracy: object) -> float:
        """Store an accuracy."""
        if not isinstance(accuracy, SupportsFloat) or not 0 <= float(accuracy) <= 1:
            raise InputError(f"train must return an accuracy in [0, 1], got {accuracy}")
        self._log.values.append(_Training(tuple(names), seed, float(accuracy)))
        self._write()
        return float(accuracy)

    def _write(self) -> None:
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(self.path, error) from error
        content = msgspec.json.format(msgspec.json.encode(self._log), indent=1)
        write_text(self.path, content.decode() + "\n")


def is_significant(gain: float, error: float, repeats: int, alpha: float) -> bool:
    """The one-sided paired t-test; a gain that is the same for all seeds is significant."""
    if error == 0:
        return gain > 0
    return t_tail(gain / error, repeats - 1) < alpha


def _words(names: Sequence[str]) -> str:
    return f"with MSA blocks {', '.join(names)}" if names else "the CNN"


# A search whose candidates are trained by a recipe, on data by name.

LOG = "search.json"  # in the job's folder
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
        self.begin = prepared.begin
        self._training, validation = held_out(prepared.images, VALIDATION, seed=recipe.seed)
        self.preprocessing = choose_preprocessing(job, recipe, self.network, self._training)
        self._validation = list(batches(validation, self.preprocessing, _VALIDATION_BATCH))
        self._job, self._recipe, self._run = job, recipe, run
        self.provenance = replace(
            prepared.provenance,
            images=len(self._training),
            preprocessing=str(self.preprocessing),
        )

    def __call__(self, candidate: nn.Module, seed: int) -> float:
        """Train a candidate in place with a seed; returns its validation accuracy."""
        recipe = replace(self._recipe, seed=seed)
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
    recipe's seed is the first repeat's.
    """
    trainer = RecipeTrainer(job, recipe, run)
    report(f"every candidate {trainer.begin}; its MSA blocks start from random weights")
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
            "split": trainer.images.split,
            "images": len(trainer.images),
            "preprocessing": str(preprocessing),
            "recipe": as_yaml(recipe),
        },
        report=report,
        run=replace(run, seed=recipe.seed, provenance=trainer.provenance),
    )
    return result, replace(trainer.network, preprocessing=preprocessing)
