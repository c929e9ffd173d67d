"""Class separability: neural collapse of the features of each block.

With x the pooled feature vectors, class means mu_c of k classes, and their mean mu:

    NC1  tr(W B^+) / k, the covariance within classes over the covariance of the class means
    NC2  how far the mu_c - mu are from equal norms and from the angles of a simplex
    NC3  |A / |A| - M / |M||^2, the head's weights against the centered means of its input
    NC4  how often the nearest class mean is not the class that the model predicts

Intervals come from the jackknife over 20 groups of images, for NC1 to NC3 with equal parts
of each class. On the features of two small networks they contain the mean over samples of as
many images in 0.93 to 1.00 of samples.

Source: Papyan, Han and Donoho (2020), Prevalence of neural collapse during the terminal phase
of deep learning training.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from visprism import kit
from visprism.estimates.estimated import jackknife
from visprism.estimates.text import some_of
from visprism.passes.pooled import PooledFeatures, Pooling, pooled_features

_ROUNDING = 1e-10  # eigenvalues below this part of the largest count as 0
_GROUPS = 20  # of images, which the jackknife leaves out one after the other
_SHUFFLES = 19  # of the labels: NC1 is below all of them by chance in 5%
# Images of an interval. With 500, NC1's interval contains the mean over samples in 0.89.
_FEWEST_FOR_NC1 = 1000
_FEWEST_OF_CLASS = 4  # images; the jackknife leaves 2 or more of each class


@kit.result(
    "class-separability",
    "Class separability",
    figures={
        "": {"scale": "log"},
        "angles": {"quantity": "maximal_angle"},
        "disagreement": {"quantity": "disagreement"},
    },
)
class NeuralCollapse(kit.ScalarPerBlock):
    """Neural collapse of pooled features; one row for each block. All are 0 in the collapse.

    Each point is a block: the variation of the features within classes over that between
    class means (NC1). All four numbers of neural collapse are 0 when the features of a
    class are one point and the class means a simplex.

    Intervals are over samples of as many images of each class. NC4 has none: where class means
    are close, their noise changes many decisions together.
    """

    value_name = "nc1"

    nc1: kit.Estimated = kit.estimate(
        "NC1: variation within classes",
        "",
        "tr(W B^+) / k: covariance within classes over covariance of the class means; NaN "
        "if it is not below its value for shuffled labels",
        asks="Do the features of a class collapse?",
        comparison="none",
    )
    nc1_shuffled: np.ndarray = kit.column(
        "NC1 of shuffled labels",
        "",
        "mean over 19 permutations of the labels: NC1 of classes that do not differ, which "
        "grows with the number of images",
    )
    equinorm: kit.Estimated = kit.estimate(
        "NC2: equal norms", "", "coefficient of variation of the norms of centered class means"
    )
    equiangularity: kit.Estimated = kit.estimate(
        "NC2: equal angles", "", "standard deviation of the cosines of centered class means"
    )
    maximal_angle: kit.Estimated = kit.estimate(
        "NC2: maximal angles", "", "mean of |cosine + 1 / (k - 1)| over pairs of classes"
    )
    disagreement: np.ndarray = kit.column(
        "NC4: nearest mean disagrees",
        "",
        "fraction of images whose nearest class mean is not the class the model predicts; NaN "
        "for a model without these classes",
    )
    accuracy: np.ndarray = kit.column(
        "Accuracy of the nearest class mean", "", "on the images that the means are taken over"
    )
    self_duality: kit.Number = kit.estimate(
        "NC3: self-duality",
        "",
        "|W / |W| - M / |M||^2 of the head and the means of its input; NaN without a head, "
        "and of one of zeros",
    )
    pooling: str = kit.scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    classes: int = kit.scalar("Classes", "", "number of classes of the images, k")

    @property
    def reason(self) -> str:
        """Why the last block has no NC1; "" where it has."""
        shuffled = np.isnan(self.nc1[-1:]) & np.isfinite(self.nc1_shuffled[-1:])
        said = "NC1 of the last block is not below its value for shuffled labels"
        return said if shuffled.any() else ""

    def answered(self, name: str) -> np.ndarray:
        """The last block, where classes differ."""
        last = np.arange(len(self))[-1:]
        return last[np.isfinite(self.nc1[last])]

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """What the number would be if classes did not differ."""
        return {"reading": f"below {self.nc1_shuffled[row]:.3g} of shuffled labels"}

    def sentences(self) -> Iterator[str | kit.Finding]:
        """NC1 by block, and where it says nothing."""
        none = self.block[np.isnan(self.nc1) & np.isfinite(self.nc1_shuffled)].tolist()
        yield from super().sentences()
        if none:
            yield (
                f"NC1 is not given for {len(none)} of {len(self)} blocks ({some_of(none)}), "
                f"where it is not below its value for {_SHUFFLES} shuffles of the labels"
            )


@kit.analysis
class ClassSeparability(kit.Analysis):
    """Neural collapse (NC1 to NC4) of the features of each block."""

    name = "class-separability"
    needs = kit.Needs.FEATURES | kit.Needs.TRAINING_IMAGES
    images = kit.Sizes(fewest=50, full=5000, work=0.5)
    passes = 1.2
    source = "Papyan et al. (2020)"
    gives = NeuralCollapse

    pooling: Literal["mean", "class", "both"] = kit.option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Pool the features of the training images, and compute all numbers of every block.

        Costs 20 eigendecompositions, of min(images, features) rows, for each block.
        """
        head = classifier_of(subject.model, subject.num_classes)
        labeled = subject.missing(kit.Needs.TARGETS) is None
        anatomy, batches = subject.anatomy, subject.training_batches()
        pooled = pooled_features(
            anatomy, batches, pooling=self.pooling, inputs_of=head, run=run
        )
        labels = head if labeled else None
        return [separability(pooled, self.pooling, labels, predicts_targets=labeled)]

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Without labels, which need not be the classes of the model."""
        reason = super().inapplicable(subject)
        if reason is None and subject.training_images.targets is None:
            return f"there are no labels in {subject.training_images.name}"
        return reason


def classifier_of(model: nn.Module, classes: int) -> nn.Linear | None:
    """The last linear layer with as many outputs as there are classes; None without one."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return next((m for m in reversed(layers) if m.out_features == classes), None)


def separability(
    pooled: PooledFeatures,
    pooling: Pooling,
    classifier: nn.Linear | None,
    *,
    predicts_targets: bool,
) -> NeuralCollapse:
    """Neural collapse of features with targets."""
    assert pooled.targets is not None
    classes, index = np.unique(pooled.targets, return_inverse=True)
    if len(classes) < 2:
        raise kit.InputError(f"targets must be of at least 2 classes, got {len(classes)}")
    if len(classes) == len(index):
        raise kit.InputError(f"a class must have several images, got {len(index)} of one each")
    features, images = list(pooled.features.values()), len(index)
    origin = pooled.provenance
    several = bool(np.bincount(index).min() >= _FEWEST_OF_CLASS)
    (log_nc1,) = _estimates(_log_nc1, features, index, [several and images >= _FEWEST_FOR_NC1])
    nc2 = _estimates(_nc2, features, index, [several] * 3)
    shuffled = np.exp(_shuffled(features, index, origin.seed))
    differs = np.exp(log_nc1) < shuffled.min(0)
    nc1 = (np.where(differs, np.exp(x), np.nan) for x in (log_nc1, log_nc1.low, log_nc1.high))
    nearest = [classes[_closest_centroids(x.astype(np.float64), index)] for x in features]
    decided = None
    if predicts_targets and pooled.logits is not None:
        decided = pooled.logits.argmax(1)
    columns: dict[str, Any] = kit.block_columns(list(pooled.features))
    columns |= {"pooling": pooling, "provenance": origin}
    return NeuralCollapse(
        **columns,
        nc1=kit.Estimated(*nc1, missing=f"fewer than {_FEWEST_FOR_NC1:,} images"),
        nc1_shuffled=shuffled.mean(0),
        equinorm=nc2[0],
        equiangularity=nc2[1],
        maximal_angle=nc2[2],
        accuracy=np.array([(n == pooled.targets).mean() for n in nearest]),
        disagreement=np.array(
            [np.nan if decided is None else (n != decided).mean() for n in nearest]
        ),
        self_duality=_self_duality(pooled, index, classes, classifier, several=several),
        classes=len(classes),
    )


# Estimates of all blocks.

Index = Int[np.ndarray, " n"]
Rows = Float[np.ndarray, "n d"]


def _estimates(
    statistic: Callable[[Rows, Index], Sequence[float]],
    features: Sequence[Float[np.ndarray, "n _"]],
    index: Index,
    enough: Sequence[Any],
) -> list[kit.Estimated]:
    """Columns of the numbers of all blocks."""
    order = np.argsort(index, kind="stable")
    number = min(_GROUPS, len(order))
    filled = np.append(order, np.full(-len(order) % number, -1))
    groups = filled.reshape(-1, number).T

    def of(groups: Int[np.ndarray, "g m"]) -> Float[np.ndarray, " q"]:
        rows = np.sort(groups[groups >= 0])
        parts = [statistic(x[rows].astype(np.float64), index[rows]) for x in features]
        return np.concatenate(parts)

    with np.errstate(invalid="ignore", divide="ignore"):
        any_interval = any(map(np.any, enough))
        made = jackknife(of, groups) if any_interval else kit.Estimated(of(groups))
    columns = [made[i :: len(enough)] for i in range(len(enough))]
    for values, given in zip(columns, enough, strict=True):
        values.low, values.high = (
            np.where(given, e, np.nan) for e in (values.low, values.high)
        )
    return columns


# Neural collapse.


def _class_means(
    x: Rows, index: Index
) -> tuple[Float[np.ndarray, "k d"], Int[np.ndarray, " k"]]:
    """Means of the classes 0 ... k - 1, and the number of images of each."""
    counts = np.bincount(index)
    return np.eye(len(counts))[index].T @ x / counts[:, None], counts


def _log_nc1(x: Rows, index: Index) -> list[float]:
    """Log of tr(W B^+) / k, each class weighing the same.

    NaN where a class has one image, which does not vary, or where all class means are equal.
    """
    means, counts = _class_means(x, index)
    k = len(means)
    if counts.min() < 2:
        return [np.nan]
    centered = (means - means.mean(0)) / np.sqrt(k)
    _, values, directions = np.linalg.svd(centered, full_matrices=False)
    spanned = values**2 > _ROUNDING * max(values[0] ** 2, np.finfo(float).tiny)
    if not spanned.any():
        return [np.nan]
    axes = directions[spanned].T / values[spanned]
    along = x @ axes - (means @ axes)[index]
    return [float(np.log(((along**2).sum(1) / counts[index]).sum() / k**2))]


def _shuffled(
    features: Sequence[np.ndarray], index: Index, seed: int
) -> Float[np.ndarray, "s blocks"]:
    """Log NC1 of shuffled labels."""
    orders = [
        torch.randperm(len(index), generator=kit.stream(seed, "labels", number)).numpy()
        for number in range(_SHUFFLES)
    ]
    by_block = [[_log_nc1(x, index[order])[0] for order in orders] for x in features]
    return np.array(by_block).T


def _nc2(x: Rows, index: Index) -> list[float]:
    """Coefficient of variation of norms, deviation of cosines, distance from a simplex.

    NaN for two classes, whose centered means are opposite in any network.
    """
    means, counts = _class_means(x, index)
    k = len(means)
    centered = means - means.mean(0)
    norms = np.linalg.norm(centered, axis=1)
    if k < 3 or not counts.all() or not norms.any():
        return [np.nan] * 3
    units = centered / np.maximum(norms, np.finfo(float).tiny)[:, None]
    cosines = (units @ units.T)[np.triu_indices(k, 1)]
    return [norms.std() / norms.mean(), cosines.std(), abs(cosines + 1 / (k - 1)).mean()]


def _closest_centroids(x: Rows, index: Index) -> Index:
    """The class of the nearest class mean."""
    means, _ = _class_means(x, index)
    return ((means**2).sum(1) - 2 * x @ means.T).argmin(1)


def _self_duality(
    pooled: PooledFeatures,
    index: Index,
    classes: Int[np.ndarray, " k"],
    classifier: nn.Linear | None,
    *,
    several: bool,
) -> kit.Number:
    """NC3, with the centered class means of the classifier's input."""
    if classifier is None or pooled.inputs is None or classes.max() >= classifier.out_features:
        return kit.Number(np.nan)
    weights = classifier.weight.detach().cpu().double().numpy()[classes]

    def nc3(x: Rows, index: Index) -> list[float]:
        means, _ = _class_means(x, index)
        centered = means - means.mean(0)
        unit = weights / np.linalg.norm(weights)
        return [((unit - centered / np.linalg.norm(centered)) ** 2).sum()]

    return _estimates(nc3, [pooled.inputs], index, [several])[0][0]
