"""Sharpness: how much the loss rises at a small distance from a model's weights.

SAM and ASAM go along the gradient, which is a lower bound of the maximum within that distance;
the Gaussian measure averages over random directions. Distances of models with different numbers
of parameters are not comparable, so that differences of two models have no interval.

Sources: Foret et al. (2021), Sharpness-aware minimization; Kwon et al. (2021), ASAM; Keskar et
al. (2017) and Andriushchenko & Flammarion (2022) on mini-batches and m-sharpness.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes, function_of
from visprism.analyses.subject import Subject
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK
from visprism.estimates import questions
from visprism.estimates.eigenvalues import heavy_tailed
from visprism.estimates.estimated import Number, mean, stacked
from visprism.loss.objective import Objective
from visprism.loss.update_rules import Differentiable, ascent_step
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

# Distances: for the gradient measures those with which both papers train CIFAR networks. Random
# directions raise the loss far less: by rho^2 tr(H) / (2 P) instead of rho |g|.
DEFAULT_RHO = {"sam": 0.05, "asam": 0.5, "gaussian": 1.0}

_PLACES = {
    "sam": "along the gradient, at Euclidean distance {rho:g}",
    "asam": "along the gradient scaled by the weights, at adaptive distance {rho:g}",
    "gaussian": "in random Gaussian directions, at Euclidean distance {rho:g}",
}
_NAMES = {"sam": "SAM", "asam": "ASAM", "gaussian": "Gaussian"}
# The increase of one loss by one measure: "values" of each random direction, or the one of a
# gradient measure, and "first_order", "loss" and "gradient_norm".
Rise = dict[str, Any]


@result_type("sharpness")
class LossIncrease(Result):
    """Increase of the loss close to the weights; one row for each measure.

    Values are means over mini-batches. ``sharpness.by_unit`` holds the values of mini-batches,
    or of random directions if the loss is over all of the data at once.
    """

    row_names = ("places",)

    measure: Texts = column(
        "Measure",
        "",
        "sam (Euclidean distance), asam (adaptive distance), or gaussian (Euclidean; average)",
    )
    rho: np.ndarray = column("Distance rho", "", "from the weights, in the norm of the measure")
    steps: np.ndarray = column("Ascent steps", "", "gradient steps; 0 for gaussian")
    sharpness: np.ndarray = estimate(
        "Loss increase",
        "nats",
        "L(w + d) - L(w)",
        question=questions.FLATNESS,
        over="mini-batches",
        comparison="none",
    )
    first_order: np.ndarray = column(
        "First-order increase", "nats", "gradient times d; NaN for several steps or gaussian"
    )
    loss: np.ndarray = column("Loss", "nats", "L(w)")
    gradient_norm: np.ndarray = column("Gradient norm", "", "Euclidean norm at w")
    batches: int = scalar("Mini-batches", "", "0: all of the data at once", default=0)
    directions: int = scalar("Directions", "", "random, of the Gaussian measure", default=0)

    @property
    def places(self) -> list[str]:
        """Where the loss rises, with the norm of the distance."""
        rows = zip(self.measure.tolist(), self.rho.tolist(), strict=True)
        return [_PLACES[measure].format(rho=rho) for measure, rho in rows]

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """What the interval is taken over; each measure is one."""
        over = "mini-batches" if self.batches else "directions"
        return {"measure": "", "over": over if np.isfinite(self.sharpness[row].low) else ""}

    @property
    def units_text(self) -> str:
        """The mini-batches that the interval is over, and the images."""
        images = self.images_text if self.provenance.images else "the objective"
        return f"{self.batches} mini-batches of {images}" if self.batches else images


def _gaussian_losses(
    objective: Differentiable, rho: float, directions: int, seed: int
) -> Float[np.ndarray, " n"]:
    """The loss at distance rho in random directions, the same for every mini-batch.

    Each value is the mean of a direction and its opposite, in which odd orders cancel.
    """
    theta, values = objective.theta, []
    for draw in range(directions):
        noise = torch.randn(len(theta), generator=stream(seed, "sharpness", draw)).to(theta)
        step = rho * noise / noise.norm()
        both = (objective.value(theta + step), objective.value(theta - step))
        values.append(sum(map(float, both)) / 2)
    return np.array(values)


def _estimate(rises: Sequence[Rise], mini_batches: bool) -> Number:
    """Over mini-batches; or of all data over random directions, for at least 3."""
    if mini_batches:
        return heavy_tailed(np.array([rise["values"].mean() for rise in rises]))
    values = rises[0]["values"]
    return mean(values) if len(values) > 2 else Number(values.mean())


@ANALYSES.register
class Sharpness(Analysis):
    """Increase of the training loss at a small distance from the weights (SAM, m-sharpness)."""

    name = "sharpness"
    full_precision = True
    group = "loss"
    needs = Needs.TARGETS | Needs.GRADIENTS | Needs.TRAINING_IMAGES
    source = "Foret et al. (2021); Kwon et al. (2021)"
    claims = ("C3",)
    images = Sizes(fewest=16, quick=160, standard=512, work=1.5)  # 160: ten mini-batches
    sections = (
        Section(
            LossIncrease,
            "Sharpness",
            "Increase of the loss of each mini-batch at a small distance from the weights: "
            "along the gradient (SAM), along the gradient scaled by the weights (ASAM), and in "
            "random directions (Gaussian). Intervals are over mini-batches. The distances of "
            "models with different numbers of parameters are not comparable.",
        ),
    )

    measures: tuple[Literal["sam", "asam", "gaussian"], ...] = option(
        ("sam", "asam", "gaussian"), "measures of sharpness"
    )
    mini_batch: int = option(16, "images per mini-batch", minimum=1)
    rho: float | None = option(
        None,
        "distance from the weights; none: 0.05 for sam, 0.5 for asam, 1 for gaussian",
        above=0,
    )
    steps: int = option(1, "number of gradient ascent steps of sam and asam", minimum=1)
    directions: int = option(
        8, "number of random directions of gaussian, each with its opposite", minimum=1, quick=2
    )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """What belongs to some of the measures."""
        ascent = {"sam", "asam"} & set(self.measures)
        return {
            "steps": (ascent, "measure sam or asam"),
            "directions": ("gaussian" in self.measures, "measure gaussian"),
        }

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """The mean sharpness of mini-batches."""
        subject = subject.in_mini_batches(self.mini_batch)
        objective = Objective(
            subject.model,
            subject.training_batches(self.mini_batch),
            run=subject.named(run, training=True),
        )
        return (self.of_mini_batches(objective),)

    def of(self, objective: Differentiable, *, run: Run = DEFAULT_RUN) -> LossIncrease:
        """The increase L(w + d) - L(w) of the loss at a distance rho.

        - ``"sam"``: d = rho g / |g| along the gradient g. With several ascent steps of length
          rho / steps, each along the gradient at the point reached, and |d| <= rho.
        - ``"asam"``: d = rho T² g / |T g| with T = |w| + 0.01 entry by entry, so that rescaling
          a layer and the inverse rescaling of the next change little; |d / T| <= rho.
        - ``"gaussian"``: the mean over random directions ±d, d = rho u / |u| with u normal.

        The gradient measures are lower bounds of the maximum within the distance; more steps
        come closer to it.

        Cost: `steps` gradients and one evaluation for each gradient measure, `2 directions`
        evaluations for the Gaussian measure.

        Sources: Foret et al. (2021), eq. 2; Kwon et al. (2021), eq. 8.
        """
        rises = [[rise] for rise in self._rises(objective, run.seed)]
        return self._result(rises, objective, run)

    def of_mini_batches(self, objective: Objective, *, run: Run | None = None) -> LossIncrease:
        """The mean sharpness of mini-batches, or m-sharpness for mini-batches of m images.

        SAM perturbs the weights for each mini-batch separately, so this, and not the sharpness
        over all data, is what it minimizes. The mean has an interval for at least 32
        mini-batches, see `visprism.core.statistics.heavy_tailed_interval`.

        Cost: the same as `sharpness`, once over the data.

        Source: Foret et al. (2021), sec. 4.
        """
        objective = objective.with_run(run)
        by_batch = [
            self._rises(objective.with_batches([batch], shared=False), objective.run.seed)
            for batch in objective.run.track(objective.batches, "mini-batches")
        ]
        by_measure = list(zip(*by_batch, strict=True))
        return self._result(by_measure, objective, objective.run, mini_batches=True)

    def _distance(self, measure: str) -> float:
        return DEFAULT_RHO[measure] if self.rho is None else self.rho

    def _rises(self, objective: Differentiable, seed: int) -> list[Rise]:
        """The increase of a loss by each measure."""
        theta, made = objective.theta, []
        gradient, loss = objective.gradient(theta), float(objective.value(theta))
        norm = gradient.cpu().double().norm().item()
        if not (np.isfinite(norm) and np.isfinite(loss)):
            raise InputError(
                f"loss and gradient must be finite, got loss {loss:g} and gradient norm "
                f"{norm:g}. Check the weights and the images."
            )
        for measure in self.measures:
            distance, linear = self._distance(measure), float("nan")
            if measure == "gaussian":
                values = _gaussian_losses(objective, distance, self.directions, seed) - loss
            else:
                step = ascent_step(objective, measure, gradient, distance, self.steps)
                values = np.array([float(objective.value(theta + step)) - loss])
                if self.steps == 1:
                    linear = (gradient.cpu().double() @ step.cpu().double()).item()
            if not np.isfinite(values).all():
                raise InputError(
                    f"the loss at distance {distance:g} must be finite for {measure}, got an "
                    f"increase of {values.mean():g}. The weights or the gradient are too large "
                    "or too small for their precision."
                )
            rise = {"values": values, "first_order": linear, "loss": loss}
            made.append(rise | {"gradient_norm": norm})
        return made

    def _result(
        self,
        rises: Sequence[Sequence[Rise]],
        objective: Differentiable,
        run: Run,
        *,
        mini_batches: bool = False,
    ) -> LossIncrease:
        def average(name: str) -> Float[np.ndarray, " measures"]:
            return np.array([np.mean([rise[name] for rise in of]) for of in rises])

        origin = run.provenance
        if isinstance(objective, Objective):
            sizes, shape = [len(batch[1]) for batch in objective.batches], objective.image_shape
            origin = run.measured(images=sum(sizes), batch_size=max(sizes), image_shape=shape)
        gaussian = np.array([measure == "gaussian" for measure in self.measures])
        return LossIncrease(
            measure=np.array(self.measures),
            rho=np.array(list(map(self._distance, self.measures))),
            steps=np.where(gaussian, 0, self.steps),
            sharpness=stacked([_estimate(of, mini_batches) for of in rises]),
            first_order=average("first_order"),
            loss=average("loss"),
            gradient_norm=average("gradient_norm"),
            batches=len(rises[0]) if mini_batches else 0,
            directions=self.directions if gaussian.any() else 0,
            provenance=origin,
        )

    def cost(self, subject: Subject) -> Cost:
        """One gradient, others for more steps, and 2 x directions evaluations for gaussian."""
        return Cost(
            per_image=3.0 + 2.0 * self.directions, gradients=1.0 + 2.0 * (self.steps - 1)
        )


sharpness = function_of(
    Sharpness, Sharpness.of, positional=["measures"], without=["mini_batch"]
)
mini_batch_sharpness = function_of(
    Sharpness,
    Sharpness.of_mini_batches,
    name="mini_batch_sharpness",
    positional=["measures"],
    without=["mini_batch"],
)


@figure(width=2.4, height=2.0)
def _(result: LossIncrease, ax: Axes) -> Axes:
    """A point for each measure with its interval; faint points are mini-batches."""
    labels = []
    for x, (measure, rho, rise) in enumerate(
        zip(result.measure, result.rho, np.asarray(result.sharpness), strict=True)
    ):
        value = result.sharpness[x]
        if value.by_unit is not None and result.batches:
            ax.plot(np.full(len(value.by_unit), x), value.by_unit, ".", color=FAINT, ms=2)
        finite = np.isfinite(value.low)
        error = [[rise - value.low], [value.high - rise]] if finite else None
        ax.errorbar([x], [rise], yerr=error, fmt="o", color=INK, markersize=4, capsize=2)
        labels.append(f"{_NAMES[measure]}\n$\\rho$ = {rho:g}")
    ax.axhline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(labels)), labels=labels)
    ax.set(xlim=(-0.6, len(labels) - 0.4), ylabel=LossIncrease.infos()["sharpness"].heading)
    return ax
