"""Readouts: what can be classified from the features of each block.

- k-NN: each of the k training images with the highest cosine similarity s adds
  exp(s / temperature) to its class.
- Ridge probe: with centered features X and one-hot targets Y of n images to fit on, the weights
  are (X' X / n + penalty (tr X' X / n d) I)^-1 X' Y / n.
- Logit lens: the model's own head (with the final norm layer) on the tokens of a block, as if
  they had left the last block. That is defined where both have one shape.

Sources: Wu et al. (2018), Unsupervised feature learning via non-parametric instance
discrimination, sec. 3.4 (weighted k-NN); Caron et al. (2021), Emerging properties in
self-supervised vision transformers (k = 20, temperature 0.07); Alain and Bengio (2017),
Understanding intermediate layers using linear classifier probes; nostalgebraist (2020),
Interpreting GPT: the logit lens.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from visprism import kit
from visprism.anatomy.run.cached_forward import cache_cuts, can_start_at, forward_from_cut
from visprism.anatomy.trace.forward import Images, forward
from visprism.estimates.estimated import mean, proportion
from visprism.passes.batches import Batch, blocks_on_grid, in_order, labeled
from visprism.passes.pooled import PooledFeatures, pooled_features, unit

NEIGHBORS, RIDGE, LENS = READOUTS = ("k-NN", "ridge probe", "logit lens")
_HEAD = 3e-4  # seconds that the probes of a block take for an image, on two cores
_TEST_ROWS = 1024  # similarities to all training images that are in memory at once

Predictions = Mapping[kit.Block, Int[np.ndarray, " n"]]
Split = tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]  # rows to fit on, rows to test on


@kit.result("readouts", "Readouts of blocks")
class Readouts(kit.SeriesPerBlock):
    """Accuracy of readouts of each block; a row for each block and readout.

    Each line is a readout: k nearest neighbors and a ridge probe on the pooled features of
    a block, and the model's own head on its tokens (logit lens). Where the probe is
    accurate and the lens is not, the classes are linearly separable in directions that the
    head does not read.

    NaN where a readout is not defined for a block.
    """

    series_name = "readout"
    value_name = "accuracy"
    row_names = ("readout",)

    readout: kit.Texts = kit.column(
        "Readout", "", "'k-NN', 'ridge probe', or 'logit lens': the model's own head"
    )
    accuracy: kit.Estimated = kit.estimate(
        "Accuracy",
        "%",
        "fraction of test images; Wilson's interval",
        asks="Can the classes be read linearly from the last block?",
    )
    dimension: np.ndarray = kit.column("Dimension", "", "of the features; 0 for the logit lens")
    pooling: str = kit.scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    evaluation: str = kit.scalar(
        "Evaluation", "", "images that were fitted, and how many tested"
    )
    chance: float = kit.scalar("Chance", "", "share of the most frequent class")
    lens_note: str = kit.scalar(
        "Note on the logit lens",
        "",
        "why it is missing for all or some blocks; '' if it is not",
    )

    def answered(self, name: str) -> np.ndarray:
        """The ridge probe of the last block."""
        return np.flatnonzero(self.readout == RIDGE)[-1:]

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Each readout, how it was evaluated, and where the logit lens is missing."""
        notes = [f"readouts of {self.pooling}-pooled features: {self.evaluation}"]
        notes += [self.lens_note] if self.lens_note else []
        yield from super().sentences()
        yield from notes


@kit.analysis
class Readout(kit.Analysis):
    """Accuracy of k-NN, a ridge probe and the logit lens on the features of each block."""

    name = "readout"
    needs = kit.Needs.FEATURES | kit.Needs.LABELS
    images = kit.Sizes(fewest=50, full=5000, work=0.8)
    source = "Caron et al. (2021); Alain & Bengio (2017); nostalgebraist (2020)"
    gives = Readouts

    pooling: Literal["mean", "class", "both"] = kit.option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    neighbors: int = kit.option(20, "number of neighbors of k-NN", minimum=1)
    temperature: float = kit.option(0.07, "temperature of the votes of neighbors", above=0)
    penalty: float = kit.option(
        0.01, "ridge penalty as a multiple of the mean feature variance", above=0
    )
    folds: int = kit.option(5, "number of folds if the data has no training split", minimum=2)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Pool the features of test and training images, and fit the readouts."""
        anatomy = subject.anatomy
        test = pooled_features(anatomy, subject.batches(), pooling=self.pooling, run=run)
        train, images, targets = None, len(test), np.asarray(test.targets)
        evaluation = f"{self.folds}-fold cross-validation over {images} images"
        if subject.training_images is not subject.images:
            batches = subject.training_batches()
            train = pooled_features(anatomy, batches, pooling=self.pooling, run=run)
            evaluation = f"fitted on {len(train)} training images, tested on {images}"
        correct, lens_note = self._fitted(test, train), ""
        try:
            refusal = subject.missing(kit.Needs.TARGETS)
            if refusal:
                raise kit.InputError(refusal)
            for block, classes in lens_predictions(anatomy, subject.batches(), run).items():
                correct[LENS, block] = classes == targets
        except kit.InputError as error:
            lens_note = f"no logit lens: {error}"
        blocks = list(test.features)
        missing = [block.name for block in blocks if (LENS, block) not in correct]
        if missing and not lens_note:
            lens_note = (
                f"logit lens not defined for {len(missing)} of {len(blocks)} blocks, whose "
                f"output has another shape than the last block's: {', '.join(missing)}"
            )
        names = [name for name in READOUTS if any(name == key for key, _ in correct)]
        rows = [(name, block) for name in names for block in blocks]
        accuracy = np.stack([correct.get(row, np.full(images, np.nan)) for row in rows], axis=1)
        readouts = Readouts(
            **kit.block_columns([block for _, block in rows]),
            readout=np.array([name for name, _ in rows]),
            accuracy=mean(accuracy.astype(float), proportion),
            dimension=np.array(
                [0 if n == LENS else test.features[b].shape[1] for n, b in rows]
            ),
            lens_note=lens_note,
            pooling=self.pooling,
            evaluation=evaluation,
            chance=float(np.unique(targets, return_counts=True)[1].max() / images),
            provenance=test.provenance,
        )
        return (readouts,)

    def _fitted(
        self, test: PooledFeatures, train: PooledFeatures | None
    ) -> dict[tuple[str, kit.Block], Bool[np.ndarray, " n"]]:
        """Which images k-NN and the ridge probe of each block classify correctly.

        They are fitted on `train`, or else by cross-validation among the images of `test`.
        """
        targets, images = test.targets, len(test)
        assert targets is not None  # see `inapplicable`
        correct = {}
        for block, features in test.features.items():
            if train is None:
                rows, classes = features, targets
                splits = list(folds(targets, self.folds))
            else:
                rows = np.concatenate([features, train.features[block]])
                classes = np.concatenate([targets, np.asarray(train.targets)])
                splits = [(np.arange(images, len(rows)), np.arange(images))]
            nearest = np.full(len(rows), -1)
            for fit, held in splits:
                nearest[held] = neighbor_predictions(
                    rows[fit],
                    classes[fit],
                    rows[held],
                    neighbors=self.neighbors,
                    temperature=self.temperature,
                )
            linear = ridge_predictions(rows, classes, splits, penalty=self.penalty)
            correct[NEIGHBORS, block] = nearest[:images] == targets
            correct[RIDGE, block] = linear[:images] == targets
        return correct

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """A pass for test images, for separate training images and for the lens, and probes."""
        separate = subject.training_images is not subject.images
        lens = subject.missing(kit.Needs.TARGETS) is None
        return kit.Cost(
            per_image=1.0 + separate + lens, seconds_per_image=_HEAD * len(subject.anatomy)
        )

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """With few images."""
        reason = super().inapplicable(subject)
        others = min(len(subject.training_images), subject.limit or math.inf)
        if subject.training_images is subject.images:
            reason = reason or subject.too_few_images(self.folds)
            others -= math.ceil(others / self.folds)
        if reason is None and others < self.neighbors:
            return f"k-NN of {self.neighbors} neighbors has only {others} images to choose from"
        return reason


def folds(targets: Int[np.ndarray, " n"], number: int) -> Iterator[Split]:
    """Rows to fit and to test on, stratified: each fold tests an equal part of each class.

    The images of a class are dealt to the folds in turn, so that the order of the images does
    not matter as long as each class has two of them.
    """
    fold = np.empty(len(targets), dtype=int)
    fold[np.argsort(targets, kind="stable")] = np.arange(len(targets)) % number
    for f in range(number):
        yield np.flatnonzero(fold != f), np.flatnonzero(fold == f)


def neighbor_predictions(
    train: Float[np.ndarray, "m d"],
    targets: Int[np.ndarray, " m"],
    test: Float[np.ndarray, "n d"],
    *,
    neighbors: int,
    temperature: float,
) -> Int[np.ndarray, " n"]:
    """Classes by the vote of the nearest training images; costs m n d multiplications."""
    classes, index = np.unique(targets, return_inverse=True)
    directions, predicted = unit(train), []
    for start in range(0, len(test), _TEST_ROWS):
        similarity = unit(test[start : start + _TEST_ROWS]) @ directions.T
        nearest = np.argpartition(-similarity, neighbors - 1, axis=1)[:, :neighbors]
        values = np.take_along_axis(similarity, nearest, axis=1)
        votes = np.exp((values - values.max(1, keepdims=True)) / temperature)
        totals = np.zeros((len(votes), len(classes)))
        np.add.at(totals, (np.arange(len(votes))[:, None], index[nearest]), votes)
        predicted.append(classes[totals.argmax(1)])
    return np.concatenate(predicted)


def ridge_predictions(
    features: Float[np.ndarray, "m d"],
    targets: Int[np.ndarray, " m"],
    splits: Sequence[Split],
    *,
    penalty: float,
) -> Int[np.ndarray, " m"]:
    """Classes with the largest output of the ridge probe.

    Costs m d^2 multiplications and a solution of d equations for each split.

    Args:
        features: of all images.
        targets: class of each image.
        splits: rows to fit on and rows to test on; a row that no split tests is -1.
        penalty: of the squared weights, in units of the mean variance of a feature.
    """
    classes, index = np.unique(targets, return_inverse=True)
    predicted = np.full(len(features), -1)
    for fit, test in splits:
        x, y = features[fit].astype(np.float64), np.eye(len(classes))[index[fit]]
        mean, shares = x.mean(0), y.mean(0)
        x -= mean
        covariance = x.T @ x / len(x)
        scale = max(np.trace(covariance) / len(covariance), np.finfo(float).tiny)
        ridge = penalty * scale * np.eye(len(covariance))
        weights = np.linalg.solve(covariance + ridge, x.T @ (y - shares) / len(x))
        scores = (features[test] - mean) @ weights + shares
        predicted[test] = classes[np.where(shares > 0, scores, -np.inf).argmax(1)]
    return predicted


def lens_blocks(anatomy: kit.Anatomy) -> list[kit.Block]:
    """The blocks whose output has the shape and layout of the last grid block's output."""
    nodes = anatomy.graph.nodes
    blocks = blocks_on_grid(anatomy)
    last = nodes[blocks[-1].end]
    return [
        block
        for block in blocks
        if nodes[block.end].shape == last.shape and nodes[block.end].layout == last.layout
    ]


def lens_predictions(
    anatomy: kit.Anatomy, batches: Iterable[Batch], run: kit.Run
) -> dict[kit.Block, Int[np.ndarray, " n"]]:
    """Class with the largest logit for each image, by block of `lens_blocks`.

    Costs a forward pass, and for each block a pass of the head.

    Args:
        anatomy: of a model in evaluation mode that gives one vector of logits per image.
        batches: (images, targets).
        run: device, precision and progress.
    """
    parts: list[dict[kit.Block, np.ndarray]] = []
    with run.compute.borrow(anatomy.model), torch.no_grad(), run.compute.autocast():
        for batch in run.track_share(batches, "logit lens"):
            images, _ = labeled(batch, run.compute)
            logits = lens_logits(anatomy, images, check=not parts)
            parts.append({b: x.argmax(1).cpu().numpy() for b, x in logits.items()})
    every = in_order(parts)
    return {b: np.concatenate([part[b] for part in every]) for b in every[0]}


@torch.no_grad()
def lens_logits(
    anatomy: kit.Anatomy, images: Images, *, check: bool = True
) -> dict[kit.Block, Float[Tensor, "b k"]]:
    """The logits that the model's head gives from the output of each of `lens_blocks`.

    Costs a forward pass, a pass of the head for each block, and another pass to `check` that
    the head gives the model's logits from the last block.
    """
    blocks = lens_blocks(anatomy)
    last = blocks[-1].end
    if check and last not in can_start_at(anatomy, images, [last]):
        raise kit.InputError(
            f"the head of {type(anatomy.model).__name__} must run on its own for the "
            f"logit lens, but does not give the same logits from {blocks[-1].name!r}"
        )
    recording = cache_cuts(anatomy, images, [block.end for block in blocks])
    logits = {}
    for block in blocks:
        with forward_from_cut(anatomy, recording, last, recording.values[block.end]):
            logits[block] = forward(anatomy.model, images)
    return logits
