"""Curvature during training: leading Hessian eigenvalues after every few updates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from visprism.anatomy import batch_size
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.estimates.findings import Finding
from visprism.loss.double_backward import BatchNorm
from visprism.loss.eigenvalues import CONVERGED, unconverged
from visprism.loss.krylov import Eigenpairs, Request, eigenpairs
from visprism.loss.objective import Loss, Objective, cross_entropy
from visprism.loss.products import Products
from visprism.loss.update_rules import UpdateRule, ascent_step, sam_threshold, update_rule
from visprism.table.result import Result, column, result_type, scalar

_COLUMNS = (
    "step", "matrix", "point", "rank", "eigenvalue", "residual", "converged", "threshold",
    "learning_rate", "nll", "gradient_norm", "alignment", "products",
)  # fmt: skip

# Norm of the random part of a start vector, beside the last eigenvectors, whose norm is 1. An
# eigenvector that was not among the leading ones would be missed without it.
_RANDOM_PART = 0.3


MATRIX_LABELS = {"hessian": "Hessian", "preconditioned": "preconditioned Hessian"}
POINT_LABELS = {"weights": "", "perturbed": " at SAM's perturbed weights"}


@result_type("training-curvature")
class CurvatureDuringTraining(Result):
    """Leading eigenvalues after some updates of training; one row for each, in order of rank.

    The matrix is the Hessian of the training loss on fixed images, or P^-1/2 H P^-1/2 with the
    preconditioner P of the optimizer. Updates are stable while its eigenvalues are below the
    threshold.
    """

    step: np.ndarray = column("Step", "", "number of updates before the measurement")
    matrix: np.ndarray = column("Matrix", "", "hessian, or preconditioned by the optimizer")
    point: np.ndarray = column("Point", "", "the weights, or perturbed as by SAM")
    rank: np.ndarray = column("Rank", "", "1 for the leading eigenvalue")
    eigenvalue: np.ndarray = column("Eigenvalue", "", "of the matrix, the largest ones")
    residual: np.ndarray = column(
        "Residual", "", "‖Av - λv‖; an eigenvalue is within this distance"
    )
    converged: np.ndarray = column("Converged", "", CONVERGED)
    threshold: np.ndarray = column(
        "Stability threshold", "", "largest stable eigenvalue; NaN: not known for this matrix"
    )
    learning_rate: np.ndarray = column("Learning rate", "", "of the last update")
    nll: np.ndarray = column("NLL", "nats", "mean loss of the fixed images at the point")
    gradient_norm: np.ndarray = column("Gradient norm", "", "of the loss of the fixed images")
    alignment: np.ndarray = column(
        "Gradient alignment",
        "",
        "fraction of the squared gradient norm in the space of eigenvectors up to this rank",
    )
    products: np.ndarray = column("Products", "", "Hessian-vector products of the measurement")
    optimizer: str = scalar("Optimizer", "", "that made the updates")
    sam_rho: float = scalar("SAM radius", "", "of the perturbed weights; 0: without SAM")
    parameters: int = scalar("Parameters", "", "size of the matrix, number of parameters")
    tol: float = scalar("Tolerance", "", "relative residual of convergence")
    batch_norm: str = scalar(
        "BatchNorm", "", "'batch': statistics of each batch, as in training; or 'frozen'"
    )

    def leading(self) -> Iterator[tuple[str, str, "CurvatureDuringTraining"]]:
        """Matrix, point and rows of rank 1 of each series, in the order of the steps."""
        for matrix, point in dict.fromkeys(
            zip(self.matrix.tolist(), self.point.tolist(), strict=True)
        ):
            rows = (self.matrix == matrix) & (self.point == point)
            yield matrix, point, self.select(rows & (self.rank == 1))

    def sentences(self) -> Iterator[str | Finding]:
        """The eigenvalue at both ends, its ratio to the threshold, and the alignment."""
        if not len(self):
            yield "no curvature was measured: training had too few steps"
            return
        for matrix, point, rows in self.leading():
            yield _series_text(rows, matrix, point)
        yield self._alignment_text()
        yield from unconverged(self.converged, self.tol)

    def _alignment_text(self) -> str:
        k = int(self.rank.max())
        rows = self.select(
            (self.rank == k) & (self.matrix == self.matrix[0]) & (self.point == "weights")
        )
        images = self.images_text
        vectors = "leading eigenvector" if k == 1 else f"{k} leading eigenvectors"
        return (
            f"the {vectors} of the {MATRIX_LABELS[str(self.matrix[0])]} hold "
            f"{np.nanmean(rows.alignment):.1%} of the squared gradient norm on average over "
            f"{len(rows)} steps, {k / self.parameters:.2g} expected of a random direction "
            f"(no intervals: one loss, of {images})"
        )


def _series_text(rows: CurvatureDuringTraining, matrix: str, point: str) -> str:
    """The eigenvalue at the first and last step, and how often it exceeds the threshold."""
    text = (
        f"leading eigenvalue of the {MATRIX_LABELS[matrix]}{POINT_LABELS[point]} "
        f"{rows.eigenvalue[0]:.4g} after step {rows.step[0]} and {rows.eigenvalue[-1]:.4g} "
        f"after step {rows.step[-1]} ({rows.optimizer})"
    )
    thresholds = np.isfinite(rows.threshold)
    if not thresholds.any():
        return f"{text}; without a stability threshold"
    ratios = rows.eigenvalue[thresholds] / rows.threshold[thresholds]
    return (
        f"{text}; {ratios[-1]:.2f} times the stability threshold at the end, above it in "
        f"{int((ratios > 1).sum())} of {len(ratios)} measurements"
    )


@dataclass(eq=False)
class CurvatureMonitor:
    """The k leading Hessian eigenvalues of the training loss, after every few updates.

    Call `step` after each update of a training loop. After every `every` updates it measures
    the loss of the fixed `batches` at the present weights:

    - the largest eigenvalues of the Hessian H of the loss, to which coupled weight decay is
      added (decoupled weight decay, as of AdamW, is not part of a loss);
    - of Adam and AdamW, also those of P^-1/2 H P^-1/2 with their preconditioner P;
    - with `sam_rho`, both also at the weights that SAM perturbs along the gradient;
    - the threshold above which the updates are unstable on a quadratic: 2 / lr for gradient
      descent; see `update_rule`;
    - the fraction of the squared gradient norm in the space of the leading eigenvectors.

    Lanczos iteration starts from the last eigenvectors and a random part. The model, its mode,
    gradients, running statistics and the random state of training stay as they are.

    Cost: 7 to 19 Hessian products over the batches for each matrix and point, at k = 1, each as
    much as six forward passes.

    Args:
        model: in training; measured without dropout and stochastic depth.
        batches: fixed training images and targets; their loss is the one that is measured.
        optimizer: that updates the model; several if each updates a part.
        every: updates between measurements.
        k: number of eigenvalues.
        sam_rho: radius of sharpness-aware minimization; 0: without.
        adaptive: whether it is adaptive (ASAM), whose threshold is not known.
        tol: relative residual of convergence.
        batch_norm: "batch" normalizes by the statistics of each batch, as training does;
            "frozen" by the running statistics.
        loss: (logits, targets) -> (B,).
        run: device, seed, deadline and provenance.

    Sources: Cohen et al. (2021), Gradient descent on neural networks typically occurs at the
    edge of stability; Cohen et al. (2022), Adaptive gradient methods at the edge of stability;
    Long & Bartlett (2024), Sharpness-aware minimization and the edge of stability; Gur-Ari,
    Roberts & Dyer (2018), Gradient descent happens in a tiny subspace.
    """

    model: nn.Module
    batches: Sequence[tuple[Tensor, Tensor]]
    optimizer: Optimizer | Iterable[Optimizer]
    every: int = field(default=1, kw_only=True)
    k: int = field(default=1, kw_only=True)
    sam_rho: float = field(default=0.0, kw_only=True)
    adaptive: bool = field(default=False, kw_only=True)
    tol: float = field(default=1e-2, kw_only=True)
    batch_norm: BatchNorm = field(default="batch", kw_only=True)
    loss: Loss = field(default=cross_entropy, kw_only=True)
    run: Run = field(default=DEFAULT_RUN, kw_only=True)
    steps: int = field(default=0, init=False)  # updates so far
    _rows: list[tuple] = field(default_factory=list, init=False, repr=False)
    _vectors: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _optimizer: str = field(default="", init=False, repr=False)  # name of its class
    _image_shape: tuple[int, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("every", "k"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.sam_rho >= 0:
            raise InputError(f"sam_rho must not be negative, got {self.sam_rho}")
        optimizers = self.optimizer
        self._optimizers: list[Optimizer] = (
            [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
        )
        updated = {id(p) for o in self._optimizers for g in o.param_groups for p in g["params"]}
        self._parameters = {
            name: p for name, p in self.model.named_parameters() if id(p) in updated
        }
        if not self._parameters:
            raise InputError("the optimizer must update parameters of the model, got none")

    @property
    def due(self) -> bool:
        """Whether the next call of `step` measures."""
        return (self.steps + 1) % self.every == 0

    def step(self) -> dict[str, float]:
        """Count an update; after every `every` of them, measure.

        Returns the leading eigenvalue and the threshold of the matrix that decides on
        stability, by name; empty without a measurement.
        """
        due = self.due
        self.steps += 1
        return self.measure() if due else {}

    def measure(self) -> dict[str, float]:
        """Measure at the present weights, whatever `every` is; returns as `step`."""
        rule = update_rule(self._optimizers, self._parameters)
        with evaluation_mode(self.model):
            objective = Objective(
                self.model,
                self.batches,
                loss=self.loss,
                parameters=list(self._parameters),
                batch_norm=self.batch_norm,
                run=replace(self.run, progress=None),
            )
            gradient = objective.gradient()
            threshold = self._threshold(rule, float(gradient.norm()))
            values = self._measure_at(objective, "weights", rule, gradient, threshold)
            if self.sam_rho:
                measure = "asam" if self.adaptive else "sam"
                ascent = ascent_step(objective, measure, gradient, self.sam_rho, 1)
                perturbed = objective.at(objective.theta + ascent)
                gradient = perturbed.gradient()
                self._measure_at(perturbed, "perturbed", rule, gradient, threshold)
        self._optimizer, self._image_shape = rule.optimizer, objective.image_shape
        return {"eigenvalue": values[0], "threshold": threshold}

    def _threshold(self, rule: UpdateRule, gradient_norm: float) -> float:
        """The largest stable eigenvalue; NaN where it is not known."""
        if not self.sam_rho:
            return rule.threshold
        if self.adaptive or rule.scale is not None:
            return nan
        return sam_threshold(rule.threshold, self.sam_rho, gradient_norm)

    def _measure_at(
        self,
        objective: Objective,
        point: str,
        rule: UpdateRule,
        gradient: Float[Tensor, " p"],
        threshold: float,
    ) -> list[float]:
        """Add the rows of each matrix at a point; returns the eigenvalues of the last one."""
        products, decay = Products(objective), rule.decay.to(gradient)
        scales = {"hessian": torch.ones_like(gradient)}
        if rule.scale is not None:
            scales["preconditioned"] = rule.scale.to(gradient)
        values: list[float] = []
        for matrix, scale in scales.items():
            before = products.count
            pairs = self._eigenpairs(products, f"{matrix} {point}", scale, decay)
            aligned = (pairs.vectors @ (scale * gradient)).square().cumsum(0)
            share = aligned / (scale * gradient).square().sum()
            values = pairs.values.tolist()
            for i, value in enumerate(values):
                row = (
                    self.steps, matrix, point, i + 1, value, float(pairs.residuals[i]),
                    bool(pairs.converged[i]),
                    threshold if matrix == [*scales][-1] else nan,
                    rule.learning_rate, products.nll_and_examples[0], float(gradient.norm()),
                    float(share[i]), products.count - before,
                )  # fmt: skip
                self._rows.append(row)
        return values

    def _eigenpairs(
        self, products: Products, key: str, scale: Float[Tensor, " p"], decay: Tensor
    ) -> Eigenpairs:
        """The leading eigenpairs of scale (H + decay) scale, from the last ones of the key."""

        def product(rows: Float[Tensor, "s p"]) -> Float[Tensor, "s p"]:
            return scale * (products(scale * rows) + decay * scale * rows)

        generator = stream(self.run.seed, "curvature monitor", key, self.steps)
        start = torch.randn(len(scale), generator=generator).to(scale)
        if key in self._vectors:
            last = self._vectors[key].to(scale).sum(0)
            start = last / last.norm() + _RANDOM_PART * start / start.norm()
        (pairs,) = eigenpairs(
            product,
            start[None],
            [Request(min(self.k, len(scale)), "LA")],
            tol=self.tol,
            run=products.objective.run,
        )
        self._vectors[key] = pairs.vectors.cpu()
        return pairs

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs to measure as if it had not stopped."""
        return {
            "steps": self.steps,
            "rows": list(self._rows),
            "vectors": dict(self._vectors),
            "optimizer": self._optimizer,
            "image_shape": self._image_shape,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.steps = state["steps"]
        self._rows = [tuple(row) for row in state["rows"]]
        self._vectors = dict(state["vectors"])
        self._optimizer, self._image_shape = state["optimizer"], tuple(state["image_shape"])

    def result(self) -> CurvatureDuringTraining:
        """All measurements so far."""
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(_COLUMNS)
        sizes = [batch_size(images) for images, _ in self.batches]
        return CurvatureDuringTraining(
            **dict(zip(_COLUMNS, map(np.array, columns), strict=True)),
            optimizer=self._optimizer,
            sam_rho=self.sam_rho,
            parameters=sum(p.numel() for p in self._parameters.values()),
            tol=self.tol,
            batch_norm=self.batch_norm,
            provenance=self.run.measured(
                images=sum(sizes), batch_size=max(sizes), image_shape=self._image_shape
            ),
        )


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside, every module is in evaluation mode; on exit each has its mode from before."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
