"""Curvature during training: leading Hessian eigenvalues at the weights of a training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import nan

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from visprism.anatomy.trace.forward import batch_size
from visprism.core.devices import require_one_device
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.estimates.findings import Finding
from visprism.loss.double_backward import BatchNorm, clear_caches
from visprism.loss.eigenvalues import CONVERGED, unconverged
from visprism.loss.krylov import Eigenpairs, Request, eigenpairs
from visprism.loss.objective import Loss, Objective, cross_entropy
from visprism.loss.products import Products
from visprism.loss.update_rules import UpdateRule, sam_step, sam_threshold, update_rule
from visprism.table.result import Result, Texts, column, result_type, scalar

_COLUMNS = (
    "matrix", "point", "rank", "eigenvalue", "residual", "converged", "threshold",
    "learning_rate", "nll", "gradient_norm", "alignment", "products",
)  # fmt: skip

MATRIX_LABELS = {"hessian": "Hessian", "preconditioned": "preconditioned Hessian"}
POINT_LABELS = {"weights": "", "perturbed": " at SAM's perturbed weights"}


@result_type(
    "training-curvature",
    "Curvature during training",
    figures={"": {}, "alignment": {"quantity": "alignment"}},
)
class CurvatureDuringTraining(Result):
    """Leading eigenvalues after some updates of training; one row for each, in order of rank.

    Leading Hessian eigenvalue of the training loss after every few updates. The dashed line
    is the largest curvature at which updates are stable on a quadratic: 2 / learning rate
    for gradient descent. For Adam it limits the preconditioned Hessian. The second figure
    is the fraction of the gradient in leading directions.

    The matrix is the Hessian of the training loss on fixed images, or P^-1/2 H P^-1/2 with the
    preconditioner P of the optimizer. Updates are stable while its eigenvalues are below the
    threshold.
    """

    step: np.ndarray = column("Step", "", "number of updates before the measurement")
    matrix: Texts = column("Matrix", "", "hessian, or preconditioned by the optimizer")
    point: Texts = column("Point", "", "the weights, or perturbed as by SAM")
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

    def scalars(self) -> dict[str, float]:
        """The last leading eigenvalue of each series, and its threshold."""
        return {
            f"{self.identifier}.{name}:{matrix}:{point}": float(getattr(rows, name)[-1])
            for matrix, point, rows in self.leading()
            for name in ("eigenvalue", "threshold")
        }

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
            f"{len(rows)} steps, {k / self.parameters:.2g} expected for a random direction "
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


def training_curvature(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    optimizer: Optimizer | Iterable[Optimizer],
    *,
    step: int = 0,
    k: int = 1,
    sam_rho: float = 0.0,
    adaptive: bool = False,
    tol: float = 1e-2,
    batch_norm: BatchNorm = "batch",
    loss: Loss = cross_entropy,
    run: Run = DEFAULT_RUN,
) -> CurvatureDuringTraining:
    """The k leading Hessian eigenvalues of the training loss at the weights of a training.

    - The largest eigenvalues of the Hessian H of the loss, to which coupled weight decay is
      added (decoupled weight decay, as of AdamW, is not part of a loss);
    - for Adam and AdamW, also the eigenvalues of P^-1/2 H P^-1/2 with their preconditioner P;
    - with `sam_rho`, both also at the weights that SAM perturbs along the gradient;
    - the threshold above which the updates are unstable on a quadratic: 2 / lr for gradient
      descent; see `update_rule`;
    - the fraction of the squared gradient norm in the space of the leading eigenvectors.

    The model, its mode, gradients and running statistics stay as they are.

    Cost: at k = 1 about 10 to 30 Hessian products over the batches for each matrix and point,
    each as much as six forward passes.

    Args:
        model: in training; measured without dropout and stochastic depth.
        batches: fixed training images and targets; their loss is the one that is measured.
        optimizer: that updates the model; several if each updates a part.
        step: number of updates so far.
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
    if not sam_rho >= 0:
        raise InputError(f"sam_rho must not be negative, got {sam_rho}")
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    updated = {id(p) for o in optimizers for g in o.param_groups for p in g["params"]}
    parameters = {name: p for name, p in model.named_parameters() if id(p) in updated}
    if not parameters:
        raise InputError("the optimizer must update parameters of the model, got none")
    require_one_device(model, "derivatives of the loss")
    batches = list(batches)
    rule = update_rule(optimizers, parameters)
    with evaluation_mode(model):
        objective = Objective(
            model,
            batches,
            loss=loss,
            parameters=list(parameters),
            batch_norm=batch_norm,
            run=replace(run, progress=None),
        )
        gradient = objective.gradient()
        threshold = _threshold(rule, sam_rho, float(gradient.norm()), adaptive=adaptive)
        points = [("weights", objective, gradient)]
        if sam_rho:
            (ascent,) = sam_step([objective.theta], [gradient], sam_rho, adaptive=adaptive)
            perturbed = objective.at(objective.theta + ascent)
            points.append(("perturbed", perturbed, perturbed.gradient()))
        rows: list[tuple] = []
        for point, at, gradient in points:
            generator = stream(run.seed, "curvature", point, step)
            start = torch.randn(len(gradient), generator=generator).to(gradient)
            products = Products(at)
            for matrix, scale in _scales(rule, gradient).items():
                before = products.count
                pairs = _leading(products, scale, rule.decay.to(gradient), start, k, tol)
                aligned = (pairs.vectors * scale * gradient).sum(1).square().cumsum(0)
                share = aligned / (scale * gradient).square().sum()
                limit = threshold if rule.scale is None or matrix != "hessian" else nan
                for i, value in enumerate(pairs.values.tolist()):
                    rows.append((
                        matrix, point, i + 1, value, float(pairs.residuals[i]),
                        bool(pairs.converged[i]), limit, rule.learning_rate,
                        products.nll_and_examples[0], float(gradient.norm()),
                        float(share[i]), products.count - before,
                    ))  # fmt: skip
    sizes = [batch_size(images) for images, _ in batches]
    columns = map(np.array, zip(*rows, strict=True))
    return CurvatureDuringTraining(
        step=np.full(len(rows), step),
        **dict(zip(_COLUMNS, columns, strict=True)),
        optimizer=rule.optimizer,
        sam_rho=sam_rho,
        parameters=sum(p.numel() for p in parameters.values()),
        tol=tol,
        batch_norm=batch_norm,
        provenance=run.measured(
            images=sum(sizes), batch_size=max(sizes), image_shape=objective.image_shape
        ),
    )


def _threshold(
    rule: UpdateRule, sam_rho: float, gradient_norm: float, *, adaptive: bool
) -> float:
    """The largest stable eigenvalue; NaN where it is not known."""
    if not sam_rho:
        return rule.threshold
    if adaptive or rule.scale is not None:
        return nan
    return sam_threshold(rule.threshold, sam_rho, gradient_norm)


def _scales(rule: UpdateRule, like: Tensor) -> dict[str, Float[Tensor, " p"]]:
    """P^-1/2 of each matrix that is measured, by its name."""
    scales = {"hessian": torch.ones_like(like)}
    return scales if rule.scale is None else scales | {"preconditioned": rule.scale.to(like)}


def _leading(
    products: Products,
    scale: Float[Tensor, " p"],
    decay: Float[Tensor, " p"],
    start: Float[Tensor, " p"],
    k: int,
    tol: float,
) -> Eigenpairs:
    """The largest eigenvalues of P^-1/2 (H + decay) P^-1/2."""

    def product(rows: Float[Tensor, "s p"]) -> Float[Tensor, "s p"]:
        return scale * (products(scale * rows) + decay * scale * rows)

    request = Request(min(k, len(scale)), "LA")
    run = products.objective.run
    (pairs,) = eigenpairs(product, start, [request], tol=tol, run=run)
    return pairs


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside, every module is in evaluation mode; on exit each has its mode from before."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        clear_caches(model)
        for module, training in before:
            module.training = training
