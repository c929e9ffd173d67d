"""Results on the loss: eigenvalues, density and trace of its Hessian, and sharpness."""

from collections.abc import Iterator

import numpy as np

from visprism.core.statistics import heavy_tailed_interval, t_interval
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.results.per_image import PerImage
from visprism.table.result import Result, column, result_type, scalar

WHICH_LABELS = {
    "LM": "largest in magnitude",
    "LA": "largest",
    "SA": "smallest",
    "BE": "largest and smallest",
}
SPLITS = {"train": "training images", "test": "test images"}


def objective_label(split: str, weight_decay: float = 0.0) -> str:
    """Name of an objective and the images it is a mean over.

    Example:
        >>> objective_label("train")
        'NLL of training images'
        >>> objective_label("test", 0.05)
        'NLL + L2 (weight decay 0.05, as in Park & Kim) of test images'
    """
    terms = "NLL"
    if weight_decay:
        terms = f"NLL + L2 (weight decay {weight_decay:g}, as in Park & Kim)"
    images = SPLITS.get(split, f"{split} images" if split else "")
    return f"{terms} of {images}" if images else terms


@result_type("curvature")
class Curvature(Result):
    """A measurement of the matrix of second derivatives of an objective."""

    parameters: int = scalar("Parameters", "", "size of the matrix, number of parameters")
    nll: float = scalar("NLL", "nats", "mean loss of the images")
    l2: float = scalar("L2 term", "nats", "half the weight decay times the squared norm")
    weight_decay: float = scalar("Weight decay", "", "of the L2 term; 0 for the NLL alone")

    @property
    def objective(self) -> str:
        """Name of the objective and of the images."""
        return objective_label(self.provenance.split, self.weight_decay)


@result_type("eigenvalues")
class Eigenvalues(Curvature):
    """Eigenvalues at the ends of the spectrum; one row for each, in order of rank."""

    rank: np.ndarray = column("Rank", "", "1 for the leading eigenvalue")
    value: np.ndarray = column("Hessian eigenvalue", "", "curvature along its eigenvector")
    residual: np.ndarray = column(
        "Residual", "", "‖Hv - λv‖; an eigenvalue is within this distance"
    )
    converged: np.ndarray = column(
        "Converged", "", "residual at most tolerance times |value|, and no other ranks before"
    )
    which: str = scalar("Which", "", "LM (magnitude), LA (largest), SA (smallest), BE (both)")
    tol: float = scalar("Tolerance", "", "relative residual of convergence")
    products: int = scalar("Products", "", "Hessian-vector products that were needed")
    learning_rate: float = scalar(
        "Learning rate", "", "of training; NaN where it is not known", default=float("nan")
    )

    def findings(self) -> tuple[Finding, ...]:
        """The eigenvalues, how many converged, and the limit of stability."""
        values = ", ".join(f"{value:.4g}" for value in self.value)
        findings = [
            Finding(
                f"leading Hessian eigenvalues ({WHICH_LABELS[self.which]}) of the "
                f"{self.objective}: {values}; "
                f"{images_text(self.provenance.images, self.provenance.split)}, "
                f"{self.parameters:,} parameters"
            )
        ]
        missing = int((~self.converged).sum())
        if missing:
            findings.append(
                Finding(
                    f"{missing} of {len(self)} eigenvalues did not converge to a relative "
                    f"residual of {self.tol:g}; each is within its residual of an eigenvalue",
                    code="VP106",
                )
            )
        findings += stability_findings(float(self.value.max()), self.learning_rate)
        return tuple(findings)

    def answers(self) -> tuple[Answer, ...]:
        """The leading eigenvalue, without an interval: it is exact for these images."""
        if self.which == "SA" or not self.converged[0]:
            return ()
        quantity = f"leading Hessian eigenvalue, {self.objective}"
        return (Answer(questions.FLATNESS.text, quantity, float(self.value[0]), claim="C16"),)


def stability_findings(largest: float, learning_rate: float) -> list[Finding]:
    """A finding where the largest eigenvalue exceeds 2 / learning rate.

    Gradient descent without momentum on a quadratic with that curvature diverges.

    Source: Cohen et al. (2021), Gradient descent on neural networks typically occurs at the
    edge of stability.
    """
    if not (learning_rate > 0 and largest > 2 / learning_rate):
        return []
    return [
        Finding(
            f"the largest Hessian eigenvalue, {largest:.4g}, is above 2 / learning rate = "
            f"{2 / learning_rate:.4g}: gradient descent without momentum would diverge along "
            "its eigenvector",
            code="VP110",
        )
    ]


@result_type("spectral-density")
class SpectralDensity(Curvature):
    """Density of all eigenvalues by stochastic Lanczos quadrature; one row per run and node."""

    run: np.ndarray = column("Run", "", "number of the random start vector")
    node: np.ndarray = column("Hessian eigenvalue", "", "Ritz value, ascending within a run")
    weight: np.ndarray = column(
        "Fraction of eigenvalues", "", "that the node represents; they sum to 1 in each run"
    )
    residual: np.ndarray = column(
        "Residual", "", "‖Hv - λv‖; an eigenvalue is within this distance of the node"
    )

    @property
    def runs(self) -> int:
        """Number of independent start vectors."""
        return len(np.unique(self.run))

    def moment(self, degree: int) -> tuple[float, float]:
        """Mean of the eigenvalues to a power, and its standard error over the runs.

        The error is NaN for fewer than 3 runs: that of two values is itself uncertain by 75%.
        """
        sums = np.bincount(self.run, self.weight * self.node**degree)
        return float(sums.mean()), _standard_error(sums)

    def findings(self) -> tuple[Finding, ...]:
        """Mean and root mean square of the eigenvalues, and the outermost nodes."""
        low, high = int(self.node.argmin()), int(self.node.argmax())
        mean, error = self.moment(1)
        interval = _interval_text(*t_interval(mean, error, self.runs))
        return (
            Finding(
                f"eigenvalues of the Hessian of the {self.objective}: mean {mean:.3g}"
                f"{interval}, root mean square {self.moment(2)[0] ** 0.5:.3g}; {self.runs} "
                f"start vectors, "
                f"{images_text(self.provenance.images, self.provenance.split)}"
            ),
            Finding(
                f"outermost Ritz values {self.node[low]:.4g} (residual "
                f"{self.residual[low]:.2g}) and {self.node[high]:.4g} (residual "
                f"{self.residual[high]:.2g}); an eigenvalue is within each residual"
            ),
        )


@result_type("trace")
class Trace(Curvature):
    """Independent estimates of the trace; one row per estimate."""

    estimate: np.ndarray = column("Trace estimate", "", "from one random vector")

    @property
    def mean(self) -> float:
        """The trace."""
        return float(self.estimate.mean())

    @property
    def error(self) -> float:
        """Its standard error; NaN for fewer than 3 estimates."""
        return _standard_error(self.estimate)

    def findings(self) -> tuple[Finding, ...]:
        """The trace, its interval, and the objective."""
        low, high = t_interval(self.mean, self.error, len(self.estimate))
        return (
            Finding(
                f"trace of the Hessian of the {self.objective}: {self.mean:.4g}"
                f"{_interval_text(low, high)}; {self.parameters:,} parameters, "
                f"{images_text(self.provenance.images, self.provenance.split)}, "
                f"interval over {len(self)} random vectors"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The trace, with its interval over random vectors."""
        low, high = t_interval(self.mean, self.error, len(self.estimate))
        quantity = f"trace of the Hessian, {self.objective}"
        return (
            Answer(
                questions.FLATNESS.text, quantity, self.mean, low, high, over="random vectors"
            ),
        )


_MEASURE_TEXT = {
    "sam": "along the gradient, at distance {rho:g}",
    "asam": "along the gradient scaled by the weights, at adaptive distance {rho:g}",
    "gaussian": "in random Gaussian directions, on average, at distance {rho:g}",
}


@result_type("sharpness")
class Sharpness(Result):
    """Increase of the loss close to the weights; one row per measure and batch."""

    measure: np.ndarray = column(
        "Measure",
        "",
        "sam, asam (distance in units of the weights), or gaussian (average case)",
    )
    batch: np.ndarray = column("Mini-batch", "", "its number; -1 for all of the data at once")
    rho: np.ndarray = column("Distance rho", "", "from the weights, in the norm of the measure")
    steps: np.ndarray = column("Ascent steps", "", "gradient steps; 0 for gaussian")
    sharpness: np.ndarray = column("Loss increase", "nats", "L(w + d) - L(w)")
    error: np.ndarray = column(
        "Standard error", "nats", "over Gaussian directions; NaN for a gradient direction"
    )
    first_order: np.ndarray = column(
        "First-order increase", "nats", "gradient times d; NaN for several steps or gaussian"
    )
    loss: np.ndarray = column("Loss", "nats", "L(w)")
    gradient_norm: np.ndarray = column("Gradient norm", "", "Euclidean norm at w")
    directions: int = scalar("Directions", "", "Gaussian directions per row", default=0)

    def means(self) -> Iterator[tuple[str, float, int, float, float, float, int]]:
        """Measure, distance, steps, mean increase, both ends of its interval, mini-batches.

        The interval is over mini-batches, from 32 of them on, see
        `visprism.core.statistics.heavy_tailed_interval`; for one row of the Gaussian measure
        it is Student's over directions.
        """
        keys = zip(self.measure.tolist(), self.rho.tolist(), self.steps.tolist(), strict=True)
        for measure, rho, steps in dict.fromkeys(keys):
            rows = (self.measure == measure) & (self.rho == rho) & (self.steps == steps)
            values = self.sharpness[rows]
            n = int((self.batch[rows] >= 0).sum())
            if n:
                low, high = heavy_tailed_interval(values)
            else:
                low, high = t_interval(
                    float(values[0]), float(self.error[rows][0]), self.directions
                )
            yield measure, rho, steps, float(values.mean()), low, high, n

    def per_mini_batch(self) -> PerImage:
        """The increase of each mini-batch by measure; empty for all of the data at once."""
        rows = self.select(self.batch >= 0)
        quantities = [
            _increase_label(measure, rho)
            for measure, rho in zip(rows.measure.tolist(), rows.rho.tolist(), strict=True)
        ]
        return PerImage(
            quantity=np.array(quantities, dtype=str),
            image=rows.batch,
            value=rows.sharpness,
            over="mini-batches",
            provenance=self.provenance,
        )

    def findings(self) -> tuple[Finding, ...]:
        """The increase by measure, with its interval over mini-batches."""
        findings = []
        data = objective_label(self.provenance.split)
        for measure, rho, steps, mean, low, high, n in self.means():
            where = _MEASURE_TEXT[measure].format(rho=rho)
            ascent = f" ({steps} ascent steps)" if steps > 1 else ""
            missing = missing_interval(low, n, "mini-batches")
            over = f"; mean over {n} mini-batches{missing}" if n else ""
            if not n and measure == "gaussian":
                over = f"; mean over {self.directions} directions"
            if self.provenance.images:
                over += f", {images_text(self.provenance.images, self.provenance.split)}"
            findings.append(
                Finding(
                    f"{data} rises by {mean:.3g}{_interval_text(low, high)} {where}{ascent}"
                    f"{over}"
                )
            )
        return tuple(findings)

    def answers(self) -> tuple[Answer, ...]:
        """The mean increase by measure."""
        return tuple(
            Answer(
                questions.FLATNESS.text,
                _increase_label(measure, rho),
                mean,
                low,
                high,
                unit="nats",
                over="mini-batches" if n else ("directions" if measure == "gaussian" else ""),
            )
            for measure, rho, _, mean, low, high, n in self.means()
        )


def _increase_label(measure: str, rho: float) -> str:
    """Name of the increase of the loss by measure and distance."""
    return f"loss increase {_MEASURE_TEXT[measure].format(rho=rho)}"


def _standard_error(values: np.ndarray) -> float:
    """Of the mean of independent values; NaN for fewer than 3."""
    n = len(values)
    return float(values.std(ddof=1) / n**0.5) if n > 2 else float("nan")


def _interval_text(low: float, high: float) -> str:
    return f" [{low:.3g}, {high:.3g}]" if np.isfinite(low) and np.isfinite(high) else ""
