"""Results on the trajectory of the weights during training."""

import numpy as np

from visprism.estimates.findings import Finding
from visprism.table.result import Result, column, result_type, scalar


@result_type("trajectory")
class Trajectory(Result):
    """The weights at several times of training; one row for each snapshot."""

    snapshot: np.ndarray = column("Snapshot", "", "its number, from 0 on")
    radius: np.ndarray = column(
        "r", "", "distance from the last snapshot over that of the first from the last"
    )
    angle: np.ndarray = column(
        "θ", "rad", "at the last snapshot, from the first; NaN for the last itself"
    )
    first: np.ndarray = column(
        "First component", "", "score of the first principal component, Euclidean distance"
    )
    second: np.ndarray = column(
        "Second component", "", "score of the second principal component, Euclidean distance"
    )
    step: np.ndarray = column(
        "Step length", "", "distance from the previous snapshot; NaN for the first"
    )
    first_share: float = scalar(
        "Explained variance, first", "", "fraction of the snapshots' variance"
    )
    second_share: float = scalar(
        "Explained variance, second", "", "fraction of the snapshots' variance"
    )
    distance: float = scalar("End-to-end distance", "", "between the first and last snapshot")

    def findings(self) -> tuple[Finding, ...]:
        """Explained variance of the figure, and the length of the path."""
        explained = self.first_share + self.second_share
        ratio = float(np.nansum(self.step)) / self.distance
        return (
            Finding(
                f"two principal components explain {explained:.0%} of the variance of "
                f"{len(self)} snapshots"
            ),
            Finding(f"path length is {ratio:.3g} times the end-to-end distance"),
        )


@result_type("projection")
class Projection(Result):
    """Snapshots projected onto a plane through the weights; one row for each."""

    snapshot: np.ndarray = column("Snapshot", "", "its number, from 0 on")
    a: np.ndarray = column("a", "", "coordinate along the first direction of the plane")
    b: np.ndarray = column("b", "", "coordinate along the second direction of the plane")
    share: np.ndarray = column(
        "In-plane fraction", "", "of the squared distance from the weights of the model"
    )
