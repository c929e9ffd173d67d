"""Trajectory of the weights during training, from checkpoints.

The components are computed from all snapshots around their mean. Buffers are not included.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from torch import nn

from visprism import kit
from visprism.analyses.loss.checkpoints import stored_weights
from visprism.drawing import style
from visprism.loss.directions import difference, gram, parameters_of
from visprism.loss.planes import State

_MIN_SNAPSHOTS = 3  # two are always on a line


@kit.result("trajectory", "Trajectory of the weights")
class WeightTrajectory(kit.Result):
    """The weights at several times of training; one row for each snapshot.

    Each point is a snapshot of training, from dark to bright, in its two principal
    components. Two numbers cannot show a path through millions of dimensions, and every
    random walk looks smooth in such a plane: conclude nothing just from the shape.
    """

    snapshot: np.ndarray = kit.column("Snapshot", "", "its number, from 0")
    first: np.ndarray = kit.column(
        "First component", "", "score of the first principal component, Euclidean distance"
    )
    second: np.ndarray = kit.column(
        "Second component", "", "score of the second principal component, Euclidean distance"
    )
    step: np.ndarray = kit.column(
        "Step length", "", "Euclidean distance from the previous snapshot; NaN for the first"
    )
    first_share: float = kit.scalar(
        "Explained variance, first", "", "fraction of the snapshots' variance"
    )
    second_share: float = kit.scalar(
        "Explained variance, second", "", "fraction of the snapshots' variance"
    )
    distance: float = kit.scalar(
        "End-to-end distance", "", "Euclidean, between the first and last snapshot"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Explained variance of the figure, and the length of the path."""
        explained = self.first_share + self.second_share
        ratio = float(np.nansum(self.step)) / self.distance
        yield (
            f"two principal components explain {explained:.0%} of the variance of "
            f"{len(self)} snapshots"
        )
        yield f"path length is {ratio:.3g} times the end-to-end distance"


def trajectory(
    model: nn.Module, snapshots: Sequence[State], *, run: kit.Run = kit.DEFAULT_RUN
) -> WeightTrajectory:
    """The trajectory of the weights, in principal components.

    The snapshots are state dicts of one architecture, in the order of training.

    Cost: the memory of all snapshots, and one inner product for each pair of them.
    """
    if len(snapshots) < _MIN_SNAPSHOTS:
        raise kit.InputError(
            f"checkpoints must be at least {_MIN_SNAPSHOTS}, in the order of training, got "
            f"{len(snapshots)}"
        )
    parameters = parameters_of(model)
    difference(snapshots[-1], parameters, f"snapshot {len(snapshots) - 1}")
    end = {name: snapshots[-1][name] for name in parameters}
    steps = [difference(s, end, f"snapshot {i}") for i, s in enumerate(snapshots)]
    products = gram(steps)
    squares = products.diagonal()  # squared distances from the last
    if squares[0] == 0:
        raise kit.InputError(
            "the first and the last snapshot must differ. Pass them in the order of training."
        )
    centered = products - products.mean(0) - products.mean(1)[:, None] + products.mean()
    values, vectors = np.linalg.eigh(centered)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    scores = vectors * np.sqrt(values)
    scores *= np.where(scores[0] > 0, -1, 1)  # the first snapshot is at the lower left
    between = squares[1:] + squares[:-1] - 2 * products.diagonal(1)
    return WeightTrajectory(
        snapshot=np.arange(len(snapshots)),
        first=scores[:, 0],
        second=scores[:, 1],
        step=np.append(np.nan, np.sqrt(between.clip(0))),
        first_share=float(values[0] / values.sum()),
        second_share=float(values[1] / values.sum()),
        distance=float(np.sqrt(squares[0])),
        provenance=run.provenance,
    )


@kit.analysis
class Trajectory(kit.Analysis):
    """Trajectory of the weights during training, from checkpoints."""

    name = "trajectory"
    group = "loss"
    source = "Park & Kim (2022), fig. 1c, since withdrawn"
    rank = 0
    default = False
    required = "checkpoints"
    gives = WeightTrajectory

    checkpoints: tuple[Path, ...] = kit.option(
        (), "checkpoints of the same architecture, at least 3, in the order of training"
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> tuple[kit.Result, ...]:
        """Principal components of the checkpoints."""
        return (trajectory(subject.model, stored_weights(self.checkpoints), run=run),)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """No forward pass."""
        return kit.Cost()


@kit.figure(width=2.7, height=2.4, share=False)
def _(result: WeightTrajectory, ax: Axes) -> Axes:
    """A point for each snapshot, joined in order, from dark (first) to bright (last)."""
    order = result.snapshot / max(1, len(result) - 1)
    places = np.stack([result.first, result.second], axis=1)
    pieces = list(np.stack([places[:-1], places[1:]], axis=1))
    ax.add_collection(
        LineCollection(pieces, colors=style.DEPTH(order[1:]), linewidths=1.0, zorder=2)
    )
    for number, (place, part) in enumerate(zip(places, order, strict=True)):
        name = style.tip(f"snapshot {number}")
        ax.plot(*place, marker="o", markersize=3, color=style.DEPTH(part), zorder=3, gid=name)
    for place, name in ((places[0], "first"), (places[-1], "last")):
        ax.annotate(
            name, tuple(place), xytext=(4, 4), textcoords="offset points", fontsize="x-small"
        )
    shares = [f"{s:.0%}" for s in (result.first_share, result.second_share)]
    across = f"First component ({shares[0]} of the variance)"
    ax.set(xlabel=across, ylabel=f"Second ({shares[1]})")
    ax.set_aspect("equal", adjustable="datalim")
    ax.text(
        0.5, 1.0, "variance along other directions is not shown", transform=ax.transAxes,
        ha="center", va="top", fontsize="x-small", style="italic", color=style.FAINT,
    )  # fmt: skip
    return ax
