"""Curvature during training: leading Hessian eigenvalues after every few updates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import nan, sqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from visprism.anatomy import batch_size
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.loss.double_backward import BatchNorm
from visprism.loss.krylov import Eigenpairs, Request, eigenpairs
from visprism.loss.objective import Loss, Objective, cross_entropy
from visprism.loss.products import Products
from visprism.loss.sharpness import ascent_step
from visprism.results.training_curvature import TrainingCurvature

_COLUMNS = (
    "step", "matrix", "point", "rank", "eigenvalue", "residual", "converged", "threshold",
    "learning_rate", "nll", "gradient_norm", "alignment", "products",
)  # fmt: skip

# Norm of the random part of a start vector, beside the last eigenvectors, whose norm is 1. An
# eigenvector that was not among the leading ones would be missed without it.
_RANDOM_PART = 0.3


@dataclass(frozen=True)
class UpdateRule:
    """The linear part of an optimizer's update, for parameters as one vector."""

    optimizer: str  # name of its class
    learning_rate: float  # the largest of its parameter groups
    threshold: float  # largest stable eigenvalue; NaN: not known, or the learning rate is 0
    decay: Float[Tensor, " p"]  # coupled weight decay, which the optimizer adds to the gradient
    scale: Float[Tensor, " p"] | None  # P^-1/2; None: P = 1


def update_rule(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, Tensor]
) -> UpdateRule:
    """The preconditioner P and the stability threshold of the present state of the optimizers.

    Of SGD, also with momentum, dampening and Nesterov's momentum, P is 1. Of Adam and AdamW
    with t updates made, P = (1 - beta1^t) (sqrt(v / (1 - beta2^t)) + eps), and beta = tau =
    beta1, so that the threshold at beta1 = 0.9 is 38 / lr. Where parameter groups have
    different learning rates, P is divided by their ratio to the largest. The threshold of
    other optimizers, and of groups with different momentum, is not known (NaN).

    An update with momentum beta and dampening tau, v <- beta v + (1 - tau) g and
    w <- w - lr P^-1 v, on a quadratic with Hessian H is stable if and only if every eigenvalue
    of P^-1/2 H P^-1/2 is below (2 + 2 beta) / ((1 - tau) lr).

    Sources: Cohen et al. (2021, 2022); see `CurvatureMonitor`.
    """
    states = {
        id(p): (optimizer, group)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    }
    members = [(p, *states[id(p)]) for p in parameters.values()]
    if any(group.get("maximize") for _, _, group in members):
        raise InputError("maximize must be False for a stability threshold, got True")
    lr = max(float(group["lr"]) for _, _, group in members)
    factors = {_momentum_factor(optimizer, group) for _, optimizer, group in members}
    factor = factors.pop() if len(factors) == 1 else nan
    names = dict.fromkeys(type(optimizer).__name__ for _, optimizer, _ in members)
    return UpdateRule(
        optimizer=" and ".join(names),
        learning_rate=lr,
        threshold=factor / lr if lr else nan,
        decay=torch.cat(
            [torch.full_like(p.detach(), _decay(o, g)).flatten() for p, o, g in members]
        ),
        scale=_scale(members, lr),
    )


def sam_threshold(threshold: float, rho: float, gradient_norm: float) -> float:
    """The largest stable eigenvalue of SAM, given that of the optimizer without SAM.

    On a quadratic with gradient g, SAM's gradient is (H + rho / |g| H^2) w, so that the update
    is stable up to the positive root of lambda + rho / |g| lambda^2 = threshold,

        lambda = |g| / (2 rho) (sqrt(1 + 4 rho threshold / |g|) - 1).

    Source: Long & Bartlett (2024), the SAM-edge, for gradient descent with threshold 2 / lr.

    Example:
        >>> sam_threshold(6.0, rho=0.5, gradient_norm=0.5)  # 2 + 2^2 = 6
        2.0
    """
    if not gradient_norm > 0:
        return nan
    ratio = rho / gradient_norm
    return (sqrt(1 + 4 * ratio * threshold) - 1) / (2 * ratio)


def _momentum_factor(optimizer: Optimizer, group: Mapping[str, Any]) -> float:
    """The threshold times the learning rate; NaN where it is not known."""
    if isinstance(optimizer, SGD):
        beta, tau = float(group["momentum"]), float(group["dampening"])
        if group["nesterov"]:
            return (2 + 2 * beta) / (1 + 2 * beta)
        return (2 + 2 * beta) / (1 - tau) if beta else 2.0
    if isinstance(optimizer, Adam | AdamW):
        beta = float(group["betas"][0])
        return (2 + 2 * beta) / (1 - beta)
    return nan


def _decay(optimizer: Optimizer, group: Mapping[str, Any]) -> float:
    """Weight decay that is added to the gradient; 0 where it is decoupled from it."""
    decoupled = group.get("decoupled_weight_decay", isinstance(optimizer, AdamW))
    coupled = isinstance(optimizer, SGD | Adam) and not decoupled
    return float(group["weight_decay"]) if coupled else 0.0


def _scale(
    members: Sequence[tuple[Tensor, Optimizer, Mapping[str, Any]]], lr: float
) -> Float[Tensor, " p"] | None:
    """P^-1/2 of all parameters; None if P = 1."""
    adaptive = any(isinstance(optimizer, Adam | AdamW) for _, optimizer, _ in members)
    uniform = len({float(group["lr"]) for _, _, group in members}) == 1
    if not adaptive and uniform:
        return None
    if adaptive and not any(o.state.get(p) for p, o, _ in members):
        raise InputError(
            "the optimizer must have made an update, since its first one determines the "
            "preconditioner. Measure after optimizer.step()."
        )
    parts = []
    for parameter, optimizer, group in members:
        inverse = _inverse_preconditioner(parameter, optimizer, group)
        ratio = float(group["lr"]) / lr if lr else 1.0
        parts.append((inverse * ratio).sqrt().flatten())
    return torch.cat(parts)


def _inverse_preconditioner(
    parameter: Tensor, optimizer: Optimizer, group: Mapping[str, Any]
) -> Tensor:
    """P^-1 of a parameter; 0 where Adam has not updated it."""
    if not isinstance(optimizer, Adam | AdamW):
        return torch.ones_like(parameter.detach())
    state = optimizer.state.get(parameter)
    if not state:
        return torch.zeros_like(parameter.detach())
    beta1, beta2 = (float(beta) for beta in group["betas"])
    updates = float(state["step"])
    squares = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"].detach()
    root = (squares / (1 - beta2**updates)).sqrt() + group["eps"]
    return 1 / ((1 - beta1**updates) * root)


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

    def result(self) -> TrainingCurvature:
        """All measurements so far."""
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(_COLUMNS)
        sizes = [batch_size(images) for images, _ in self.batches]
        return TrainingCurvature(
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
