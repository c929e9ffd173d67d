"""Spectral density of the Hessian over all images, its leading eigenvalues, and its trace."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from visprism import kit
from visprism.drawing import style
from visprism.estimates.estimated import no_interval, student
from visprism.loss.density import hutchpp, quadrature
from visprism.loss.eigenvalues import (
    WHICH_LABELS,
    Curvature,
    Eigenvalues,
    top_eigenvalues,
)
from visprism.loss.objective import Objective
from visprism.loss.products import Products, random_signs, result_fields
from visprism.table.result import estimate

_PRODUCTS = 26  # Hessian-vector products for the leading eigenvalues


@kit.result("spectral-density", "Spectral density of the Hessian")
class SpectralDensity(Curvature):
    """Density of all eigenvalues by stochastic Lanczos quadrature; one row per run and node.

    Fraction of all eigenvalues near each value, for the mean loss of all images, on a
    logarithmic scale. Most eigenvalues are near 0. The leading eigenvalue depends on the
    number of images: compare models on the same images.
    """

    run: np.ndarray = kit.column("Run", "", "number of the random start vector")
    node: np.ndarray = kit.column(
        "Hessian eigenvalue", "", "Ritz value, ascending within a run"
    )
    weight: np.ndarray = kit.column(
        "Fraction of eigenvalues", "", "that the node represents; they sum to 1 in each run"
    )
    residual: np.ndarray = kit.column(
        "Residual", "", "‖Hv - λv‖; an eigenvalue is within this distance of the node"
    )

    @property
    def runs(self) -> int:
        """Number of independent start vectors."""
        return len(np.unique(self.run))

    def moment(self, degree: int) -> kit.Number:
        """Mean of the eigenvalues to a power, with its interval over the runs."""
        return _over_vectors(np.bincount(self.run, self.weight * self.node**degree))

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Mean and root mean square of the eigenvalues, and the outermost nodes."""
        ends = " and ".join(
            f"{self.node[i]:.4g} (residual {self.residual[i]:.2g})"
            for i in (self.node.argmin(), self.node.argmax())
        )
        yield (
            f"eigenvalues of the Hessian of the {self.objective}: mean "
            f"{self.moment(1).text()}, root mean square {self.moment(2) ** 0.5:.3g}; "
            f"{self.runs} start vectors, {self.images_text}"
        )
        yield f"outermost Ritz values {ends}; an eigenvalue is within each residual"


@kit.result("trace", "Trace of the Hessian", figures={})
class Trace(Curvature):
    """Trace of the Hessian, and independent estimates of it; one row per estimate.

    Independent estimates of the sum of all eigenvalues; their mean is the trace.
    """

    trace: float = estimate(
        "Trace of the Hessian",
        "",
        "mean of the estimates",
        asks="How flat is the loss?",
        better="lower",
        over="random vectors",
        comparison="none",
    )
    estimate: np.ndarray = kit.column("Trace estimate", "", "from one random vector")

    @property
    def units_text(self) -> str:
        """The vectors that the interval is over, and the images."""
        return f"{len(self)} random vectors and {self.images_text}"


def spectral_density(
    objective: Objective,
    *,
    runs: int = 4,
    steps: int = 40,
    run: kit.Run | None = None,
) -> SpectralDensity:
    """Density of all eigenvalues of an objective's Hessian, by stochastic Lanczos quadrature.

    Each run starts from random signs and gives `steps` nodes with weights. The fraction of
    eigenvalues in an interval is the weight of its nodes, the mean of f over all eigenvalues is
    sum_i w_i f(node_i), both up to the spread of the runs. An eigenvalue lies within the
    residual of each node; the leading eigenvalue of a mean over N images depends on N, so
    compare models on the same number of images.

    Cost: runs x steps Hessian products, and memory for `steps` vectors.

    Sources: Ubaru, Chen & Saad (2017), Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature; Ghorbani, Krishnan & Xiao (2019), An investigation into neural net optimization.
    """
    objective = objective.with_run(run)
    products = Products(objective)
    signs = random_signs(objective, runs, objective.run.seed, "density")
    nodes, weights, residuals = quadrature(products, signs, steps=steps, run=objective.run)
    return SpectralDensity(
        run=np.repeat(np.arange(runs), nodes.shape[1]),
        node=nodes.flatten().numpy(),
        weight=weights.flatten().numpy(),
        residual=residuals.flatten().numpy(),
        **result_fields(products),
    )


def trace(
    objective: Objective,
    *,
    probes: int = 30,
    run: kit.Run | None = None,
) -> Trace:
    """Trace of an objective's Hessian, the sum of all eigenvalues, with its interval.

    Hutch++ averages v^T H v over random signs v; it uses a third of the probes to find the
    leading eigenvectors, and computes the trace of their space exactly.

    Cost: one Hessian product for each probe.

    Source: Meyer, Musco, Musco & Woodruff (2021), Hutch++.
    """
    objective = objective.with_run(run)
    products = Products(objective)
    signs = random_signs(objective, probes, objective.run.seed, "trace")
    estimates = hutchpp(products, signs).numpy()
    return Trace(estimate=estimates, trace=_over_vectors(estimates), **result_fields(products))


def _over_vectors(values: np.ndarray) -> kit.Number:
    """Mean over random vectors; at least 3 give an interval: the error of 2 is off by 75%."""
    return kit.mean(values, student if len(values) > 2 else no_interval)


@kit.analysis
class Density(kit.Analysis):
    """Spectral density, leading eigenvalues and trace of the Hessian of the training loss."""

    name = "density"
    full_precision = True
    group = "loss"
    needs = kit.Needs.OUTCOMES | kit.Needs.GRADIENTS | kit.Needs.TRAINING_IMAGES
    source = "Ghorbani, Krishnan & Xiao (2019); Park & Kim (2022), app. C"
    claims = ("C16",)
    images = kit.Sizes(fewest=16, quick=32, standard=256, work=2)
    rank = 3
    default = False
    gives = (
        SpectralDensity,
        Eigenvalues,
        Trace,
    )

    k: int = kit.option(5, "number of leading eigenvalues", minimum=1)
    runs: int = kit.option(
        4,
        "number of random start vectors of the density; at least 3 for a standard error",
        minimum=1,
    )
    steps: int = kit.option(40, "number of Lanczos steps per start vector", minimum=2, quick=20)
    probes: int = kit.option(
        30, "number of Hessian products for the trace; a third give its estimates", minimum=3
    )
    weight_decay: float | None = kit.option(
        0.0,
        "weight decay of the L2 term; above 0, NLL + L2 is measured instead of NLL; none: that "
        "in the checkpoint's recipe, or 0 without one",
        minimum=0,
    )
    parameters: str = kit.option(
        "trained",
        "parameters to differentiate by: trained (with requires_grad), all, a pattern of "
        "names, block:NAME, stage:NUMBER or kind:KIND",
    )
    learning_rate: float | None = kit.option(
        None,
        "learning rate of training, to compare the sharpness with 2 / learning rate",
        above=0,
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> tuple[kit.Result, ...]:
        """Density, leading eigenvalues and trace."""
        wd = subject.weight_decay if self.weight_decay is None else self.weight_decay
        objective = Objective(
            subject.model,
            subject.training_batches(),
            weight_decay=wd or 0.0,
            decayed=subject.decayed,
            parameters=self.parameters,
            run=subject.named(run, training=True),
        )
        return (
            spectral_density(objective, runs=self.runs, steps=min(self.steps, len(objective))),
            top_eigenvalues(
                objective, k=min(self.k, len(objective)), learning_rate=self.learning_rate
            ),
            trace(objective, probes=self.probes),
        )

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Hessian-vector products of all images."""
        return kit.Cost(products=float(self.runs * self.steps + self.probes + _PRODUCTS))


@kit.figure(width=2.4, height=2.0)
def _(result: Eigenvalues, ax: Axes) -> Axes:
    """Eigenvalues by rank with their residuals; hollow where they have not converged."""
    ax.axhline(0, color=style.FAINT, linewidth=0.6, zorder=1)
    faces = [style.INK if done else "white" for done in result.converged]
    ax.errorbar(
        result.rank, result.value, yerr=result.residual, fmt="none", color=style.INK, capsize=2
    )
    ax.scatter(result.rank, result.value, color=faces, edgecolors=style.INK, s=18, zorder=3)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel=f"Rank ({WHICH_LABELS[result.which]})", ylabel="Hessian eigenvalue")
    return ax


@kit.figure(width=3.0, height=2.1, share=False)
def _(result: SpectralDensity, ax: Axes) -> Axes:
    """A stem for each node of each run: the fraction of eigenvalues that it represents."""
    weight = np.maximum(result.weight / result.runs, 1e-16)
    ax.vlines(
        result.node, 1e-16, weight, color=style.KIND_COLORS["conv"], linewidth=0.8, alpha=0.7
    )
    ax.plot(result.node, weight, "o", color=style.KIND_COLORS["conv"], markersize=2)
    ax.axvline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    ax.set(yscale="log", ylim=(max(1e-12, 0.3 / result.parameters / result.runs), 1.5))
    infos = SpectralDensity.infos()
    ax.set(xlabel=infos["node"].label, ylabel=infos["weight"].label)
    return ax
