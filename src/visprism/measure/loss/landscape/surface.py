"""Surfaces: the loss at the points of planes through a model's weights, and how it rises."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from visprism.results.base import Result, column, result_type, scalar

RINGS = (
    0.1,
    0.5,
    1.0,
)  # distances from the weights at which the rise is told, where it is known

TOLERABLE = 1e-3  # nats that rounding may cost without a word


@result_type("landscape")
class Landscape(Result):
    """Loss and accuracy over planes in the space of parameters; one row for each point.

    `nll` and `l2` are never added up here: the objective of training is their sum.
    """

    pair: np.ndarray = column("Pair", "", "number of the plane, from 0 on")
    a: np.ndarray = column(
        "a", "", "along its first direction; the model's own weights are at a = b = 0"
    )
    b: np.ndarray = column("b")
    nll: np.ndarray = column(
        "NLL", "nats", "mean loss over images, in nats; inf or NaN where it overflows"
    )
    nll_error: np.ndarray = column(
        "Nll error", "", "standard error over images; NaN for one image"
    )
    rise: np.ndarray = column("Rise of the NLL", "", "nll less that of the model's own weights")
    rise_error: np.ndarray = column(
        "Rise error", "", "its standard error over images, each compared with itself"
    )
    l2: np.ndarray = column(
        "L2 term", "nats", "(weight_decay / 2) times the squared norm of the decayed parameters"
    )
    accuracy: np.ndarray = column("Accuracy", "", "fraction of the images whose class is right")
    accuracy_error: np.ndarray = column("Accuracy error")
    classes: int = scalar(
        "Classes",
        "",
        "of the model; log(classes) is the loss of one that knows nothing",
        default=0,
    )
    weight_decay: float = scalar("Weight decay", default=0.0)
    plane: str = scalar("Plane", "", "'random', 'checkpoints' or 'given'", default="random")
    normalization: str = scalar("Normalization", "", "of random directions", default="filter")
    batch_norm: str = scalar("Batch norm", "", "or 'reestimated'", default="frozen")
    loss: str = scalar("Loss", default="cross_entropy")
    rounding: float = scalar(
        "Rounding",
        "",
        "nats that a lower precision costs at the model's own weights",
        default=0.0,
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        told = []
        for radius, rise, spread, pairs in self.rings():
            of = f" ± {spread:.2g} over {pairs} pairs" if pairs > 1 else ""
            told.append(f"at a distance of {radius:g} the NLL has risen by {rise:.3g}{of}")
        if self.rounding > TOLERABLE:
            told.append(
                f"in {self.provenance.precision} the NLL of the model's own weights is off by "
                f"{self.rounding:.2g} nats, so smaller differences say nothing"
            )
        lost = int((~np.isfinite(self.nll)).sum())
        if lost:
            told.append(f"the loss is not finite at {lost} of {len(self)} points")
        return told

    def rings(self) -> Iterator[tuple[float, float, float, int]]:
        """Radius, mean rise, its standard deviation over pairs, and how many pairs.

        A ring holds the points within half a step of the grid. Rings that reach beyond the
        grid, and those where a loss is not finite, are left out; so are all but those of random
        directions, whose distances mean something else.
        """
        if self.plane != "random":
            return
        step = np.diff(np.unique(self.a)).min()
        distance = np.hypot(self.a, self.b)
        for radius in RINGS:
            ring = np.abs(distance - radius) <= step / 2
            of_pairs = np.array(
                [self.rise[ring & (self.pair == pair)].mean() for pair in np.unique(self.pair)]
                if step <= radius * (1 + 1e-9) and radius <= self.a.max() * (1 + 1e-9)
                else [np.nan]
            )
            if np.isfinite(of_pairs).all():
                spread = of_pairs.std(ddof=1) if len(of_pairs) > 1 else np.nan
                yield radius, float(of_pairs.mean()), float(spread), len(of_pairs)

    def table(self, quantity: str, pair: int) -> Float[np.ndarray, "m n"]:
        """A quantity over one plane, b changing from row to row."""
        rows = self.select(self.pair == pair)
        return getattr(rows, quantity).reshape(len(np.unique(rows.b)), -1)
