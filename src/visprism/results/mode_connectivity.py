"""Linear mode connectivity: loss between checkpoints, and soups of them."""

from typing import ClassVar

import numpy as np

from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text, points_text
from visprism.table.result import Result, column, result_type, scalar
from visprism.table.shapes import Curve


@result_type("linear-paths")
class LinearPaths(Curve):
    """Loss and accuracy along the segments from the model to checkpoints; a row for each point.

    The barrier of a point is its loss minus the straight line between the losses of both ends,
    paired by image.
    """

    value_name: ClassVar[str] = "nll"
    x_name: ClassVar[str] = "position"
    series_name: ClassVar[str] = "checkpoint"

    checkpoint: np.ndarray = column("Checkpoint", "", "at the end of the segment")
    position: np.ndarray = column("Position", "", "0 at the model, 1 at the checkpoint")
    nll: np.ndarray = column("NLL", "nats", "mean over images")
    nll_error: np.ndarray = column("Standard error of the NLL", "nats", "over images")
    accuracy: np.ndarray = column("Accuracy", "", "at the point")
    barrier: np.ndarray = column(
        "Barrier", "nats", "NLL minus the straight line between both ends"
    )
    barrier_low: np.ndarray = column(
        "Barrier, low", "nats", "lower end of the 95% interval over images"
    )
    barrier_high: np.ndarray = column(
        "Barrier, high", "nats", "upper end of the 95% interval over images"
    )
    batch_norm: str = scalar(
        "BatchNorm", "", "'reestimated' at each point, or 'interpolated' running statistics"
    )

    def findings(self) -> tuple[Finding, ...]:
        """The barrier height of each segment, a maximum over its points."""
        texts = []
        for name, rows in self.series().items():
            inner = rows[1:-1]
            top = int(inner[self.barrier[inner].argmax()])
            height = interval_text(
                float(self.barrier[top]), float(self.barrier_low[top]),
                float(self.barrier_high[top]), ".3f",
            )  # fmt: skip
            texts.append(
                f"linear path to {name}: largest barrier of {len(inner)} points {height} nats "
                f"at {self.position[top]:.2g}, accuracy there {self.accuracy[top]:.1%} (ends "
                f"{self.accuracy[rows[0]]:.1%} and {self.accuracy[rows[-1]]:.1%}); BatchNorm "
                f"{self.batch_norm}; intervals over {self.units_text}"
            )
        return tuple(map(Finding, texts))


@result_type("soups")
class Soup(Result):
    """Accuracy of the mean of the weights of several checkpoints, beside that of each."""

    member: np.ndarray = column("Weights", "", "'model', a checkpoint, or 'soup'")
    accuracy: np.ndarray = column("Accuracy", "", "fraction of images classified correctly")
    nll: np.ndarray = column("NLL", "nats", "mean over images")
    gain: np.ndarray = column("Accuracy gain of the soup", "", "over the accuracy of this row")
    gain_low: np.ndarray = column("Gain, low", "", "lower end of the 95% interval, paired")
    gain_high: np.ndarray = column("Gain, high", "", "upper end of the 95% interval, paired")

    def findings(self) -> tuple[Finding, ...]:
        """The soup, and its gain over the best of its members."""
        best = int(self.accuracy[:-1].argmax())
        gain = points_text(
            float(self.gain[best]), float(self.gain_low[best]), float(self.gain_high[best])
        )
        images = images_text(self.provenance.images, self.provenance.split)
        return (
            Finding(
                f"uniform soup of {len(self) - 1} weights: accuracy {self.accuracy[-1]:.1%}; "
                f"minus that of {self.member[best]}, the best of them: {gain} ({images})"
            ),
        )
