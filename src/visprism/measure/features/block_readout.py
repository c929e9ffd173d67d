"""Readouts of blocks: k nearest neighbors and a ridge probe on pooled features.

Sources: Wu et al. (2018), Unsupervised feature learning via non-parametric instance
discrimination, sec. 3.4 (weighted k-NN); Caron et al. (2021), Emerging properties in
self-supervised vision transformers (k = 20, temperature 0.07); Alain and Bengio (2017),
Understanding intermediate layers using linear classifier probes.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.passes.batches import image_shape
from visprism.passes.blocks import block_columns
from visprism.passes.pooled import PooledFeatures, Pooling
from visprism.results.per_image import PerImage
from visprism.results.readout import LAST_PROBE, LENS, NEIGHBORS, RIDGE, Readouts

_TEST_ROWS = 1024  # similarities to all training images that are in memory at once

Predictions = Mapping[Block, Int[np.ndarray, " n"]]
Split = tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]  # rows to fit on, rows to test on


def folds(targets: Int[np.ndarray, " n"], number: int) -> Iterator[Split]:
    """Rows to fit and to test on, stratified: each fold tests an equal part of each class.

    The images of a class are dealt to the folds in turn, so that the order of the images does
    not matter as long as each class has two of them.
    """
    images = len(targets)
    if not 2 <= number <= images:
        raise InputError(f"folds must be between 2 and {images} (images), got {number}")
    fold = np.empty(images, dtype=int)
    fold[np.argsort(targets, kind="stable")] = np.arange(images) % number
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
    """Classes by the vote of the nearest training images.

    Each of the `neighbors` training images with the highest cosine similarity s adds
    exp(s / temperature) to its class. Costs m n d multiplications.
    """
    if neighbors > len(train):
        raise InputError(
            f"neighbors must be at most {len(train)} (images to choose from), got {neighbors}"
        )
    classes, index = np.unique(targets, return_inverse=True)
    directions, predicted = _unit(train), []
    for start in range(0, len(test), _TEST_ROWS):
        similarity = _unit(test[start : start + _TEST_ROWS]) @ directions.T
        nearest = np.argpartition(-similarity, neighbors - 1, axis=1)[:, :neighbors]
        values = np.take_along_axis(similarity, nearest, axis=1)
        votes = np.exp((values - values.max(1, keepdims=True)) / temperature)
        totals = np.zeros((len(votes), len(classes)))
        np.add.at(totals, (np.arange(len(votes))[:, None], index[nearest]), votes)
        predicted.append(classes[totals.argmax(1)])
    return np.concatenate(predicted)


def _unit(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.maximum(norms, np.finfo(np.float32).tiny)


def ridge_predictions(
    features: Float[np.ndarray, "m d"],
    targets: Int[np.ndarray, " m"],
    splits: list[Split],
    *,
    penalty: float,
) -> Int[np.ndarray, " m"]:
    """Classes by a linear map that is fitted to one-hot targets in closed form.

    With centered features X and one-hot targets Y of the rows to fit on, the weights are

        W = (X' X / n + penalty (tr X' X / n d) I)^-1 X' Y / n,

    and an image belongs to the class with the largest output. The Gram matrices of all rows
    are summed once; those of a fold are all less those of its test rows. Costs m d^2
    multiplications and a solution of d equations for each split.

    Args:
        features: of all images.
        targets: class of each image.
        splits: rows to fit on and rows to test on; a row that no split tests is -1.
        penalty: of the squared weights, in units of the mean variance of a feature.
    """
    classes, index = np.unique(targets, return_inverse=True)
    x = features.astype(np.float64) - features.mean(0, dtype=np.float64)
    y = np.eye(len(classes))[index]
    ones = np.column_stack([np.ones(len(x)), x])
    predicted = np.full(len(x), -1)
    rows = np.unique(np.concatenate([np.union1d(*split) for split in splits]))
    gram, moments = ones[rows].T @ ones[rows], ones[rows].T @ y[rows]
    for fit, test in splits:
        rest = np.setdiff1d(rows, fit)
        held_gram, held_moments = ones[rest].T @ ones[rest], ones[rest].T @ y[rest]
        weights, bias = _solve(gram - held_gram, moments - held_moments, penalty)
        present = np.isin(np.arange(len(classes)), index[fit])
        scores = np.where(present, x[test] @ weights + bias, -np.inf)
        predicted[test] = classes[scores.argmax(1)]
    return predicted


def _solve(
    gram: Float[np.ndarray, "e e"], moments: Float[np.ndarray, "e k"], penalty: float
) -> tuple[Float[np.ndarray, "_ k"], Float[np.ndarray, " k"]]:
    """Weights and bias, from sums of products with a one before the features."""
    n = gram[0, 0]
    mean, target = gram[0, 1:] / n, moments[0] / n
    covariance = gram[1:, 1:] / n - np.outer(mean, mean)
    scale = max(np.trace(covariance) / len(covariance), np.finfo(float).tiny)
    cross = moments[1:] / n - np.outer(mean, target)
    weights = np.linalg.solve(covariance + penalty * scale * np.eye(len(covariance)), cross)
    return weights, target - mean @ weights


def readouts(
    anatomy: Anatomy,
    test: PooledFeatures,
    train: PooledFeatures | None,
    lens: Predictions | str,
    *,
    pooling: Pooling,
    neighbors: int = 20,
    temperature: float = 0.07,
    penalty: float = 0.01,
    number_of_folds: int = 5,
    run: Run,
) -> tuple[Readouts, PerImage]:
    """Accuracies of all readouts of all blocks, with those of single images.

    Args:
        anatomy: of the model.
        test: features of the images that are classified, with targets.
        train: features to fit on; None: cross-validation among those of `test`.
        lens: classes that the logit lens gives, or the reason why it gives none.
        pooling: of the features.
        neighbors: number of neighbors that vote.
        temperature: of their votes.
        penalty: of the ridge probe; see `ridge_predictions`.
        number_of_folds: of the cross-validation.
        run: provenance.
    """
    targets = _targets(test)
    images = len(test)
    correct: dict[tuple[str, Block], Bool[np.ndarray, " n"]] = {}
    for block, features in test.features.items():
        if train is None:
            rows, classes = features, targets
            splits = list(folds(targets, number_of_folds))
        else:
            rows = np.concatenate([features, train.features[block]])
            classes = np.concatenate([targets, _targets(train)])
            splits = [(np.arange(images, len(rows)), np.arange(images))]
        nearest = np.full(len(rows), -1)
        for fit, held in splits:
            nearest[held] = neighbor_predictions(
                rows[fit],
                classes[fit],
                rows[held],
                neighbors=neighbors,
                temperature=temperature,
            )
        linear = ridge_predictions(rows, classes, splits, penalty=penalty)
        correct[NEIGHBORS, block] = nearest[:images] == targets
        correct[RIDGE, block] = linear[:images] == targets
    for block, predicted in ({} if isinstance(lens, str) else lens).items():
        correct[LENS, block] = predicted == targets
    result = _assembled(test, correct, lens)
    evaluation = (
        f"{number_of_folds}-fold cross-validation over {images} images"
        if train is None
        else f"fitted on {len(train)} training images, tested on {images}"
    )
    origin = run.measured(
        images=images, batch_size=test.batch_size, image_shape=image_shape(anatomy)
    )
    last = correct[RIDGE, list(test.features)[-1]]
    return (
        Readouts(
            **result,
            pooling=pooling,
            evaluation=evaluation,
            chance=float(np.bincount(targets).max() / images),
            provenance=origin,
        ),
        PerImage(
            quantity=np.full(images, LAST_PROBE),
            image=np.arange(images),
            value=last.astype(float),
            provenance=origin,
        ),
    )


def _targets(features: PooledFeatures) -> Int[np.ndarray, " n"]:
    if features.targets is None:
        raise InputError("batches must be (images, targets) for a readout, got images only")
    return features.targets


def _assembled(
    test: PooledFeatures,
    correct: Mapping[tuple[str, Block], Bool[np.ndarray, " n"]],
    lens: Predictions | str,
) -> dict:
    """The columns, and the note on the logit lens."""
    readouts = sorted({name for name, _ in correct}, key=(NEIGHBORS, RIDGE, LENS).index)
    blocks = list(test.features)
    rows = [(name, block) for name in readouts for block in blocks]
    share = np.array([correct[row].mean() if row in correct else np.nan for row in rows])
    missing = [block.name for block in blocks if (LENS, block) not in correct]
    note = lens if isinstance(lens, str) else ""
    if not note and missing:
        note = (
            f"logit lens not defined for {len(missing)} of {len(blocks)} blocks, whose output "
            f"has another shape than that of the last block: {', '.join(missing)}"
        )
    return {
        **block_columns([block for _, block in rows]),
        "readout": np.array([name for name, _ in rows]),
        "accuracy": share,
        "accuracy_error": np.sqrt(share * (1 - share) / len(test)),
        "dimension": np.array(
            [0 if name == LENS else test.features[block].shape[1] for name, block in rows]
        ),
        "lens_note": note,
    }
