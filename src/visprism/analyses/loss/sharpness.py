"""Sharpness: how much the loss rises at a small distance from a model's weights.

SAM and ASAM go along the gradient, which is a lower bound of the maximum within that distance;
the Gaussian measure averages over random directions. Distances of models with different numbers
of parameters are not comparable, so that differences of two models have no interval.

Sources: Foret et al. (2021), Sharpness-aware minimization; Kwon et al. (2021), ASAM; Keskar et
al. (2017) and Andriushchenko & Flammarion (2022) on mini-batches and m-sharpness.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes

from visprism import kit
from visprism.drawing import style
from visprism.estimates.eigenvalues import heavy_tailed
from visprism.estimates.estimated import stacked
from visprism.estimates.text import number_of
from visprism.loss.objective import Objective
from visprism.loss.update_rules import sam_step

# Distances: for the gradient measures those with which both papers train CIFAR networks. Random
# directions raise the loss far less: by rho^2 tr(H) / (2 P) instead of rho |g|.
DEFAULT_RHO = {"sam": 0.05, "asam": 0.5, "gaussian": 1.0}

_PLACES = {
    "sam": "along the gradient, at Euclidean distance {rho:g}",
    "asam": "along the gradient scaled by the weights, at adaptive distance {rho:g}",
    "gaussian": "in random Gaussian directions, at Euclidean distance {rho:g}",
}
_NAMES = {"sam": "SAM", "asam": "ASAM", "gaussian": "Gaussian"}
Rise = dict[str, float]  # "increase" of one loss by one measure, "first_order" and "loss"


@kit.result("sharpness", "Sharpness")
class LossIncrease(kit.Result):
    """Increase of the loss close to the weights; one row for each measure.

    Increase of the loss of each mini-batch at a small distance from the weights: along the
    gradient (SAM), along the gradient scaled by the weights (ASAM), and in random
    directions (Gaussian). Intervals are over mini-batches. The distances of models with
    different numbers of parameters are not comparable.

    Values are means over mini-batches. ``sharpness.by_unit`` holds the values of mini-batches.
    """

    row_names = ("places",)

    measure: kit.Texts = kit.column(
        "Measure",
        "",
        "sam (Euclidean distance), asam (adaptive distance), or gaussian (Euclidean; average)",
    )
    rho: np.ndarray = kit.column(
        "Distance rho", "", "from the weights, in the norm of the measure"
    )
    steps: np.ndarray = kit.column("Ascent steps", "", "gradient steps; 0 for gaussian")
    sharpness: np.ndarray = kit.estimate(
        "Loss increase",
        "nats",
        "L(w + d) - L(w)",
        asks="How flat is the loss?",
        better="lower",
        over="mini-batches",
        comparison="none",
    )
    first_order: np.ndarray = kit.column(
        "First-order increase", "nats", "gradient times d; NaN for several steps or gaussian"
    )
    loss: np.ndarray = kit.column("Loss", "nats", "L(w)")
    batches: int = kit.scalar("Mini-batches", "", "that the values are means over")
    directions: int = kit.scalar("Directions", "", "random, of the Gaussian measure", default=0)

    @property
    def places(self) -> list[str]:
        """Where the loss rises, with the norm of the distance."""
        rows = zip(self.measure.tolist(), self.rho.tolist(), strict=True)
        return [_PLACES[measure].format(rho=rho) for measure, rho in rows]

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """What the interval is taken over; each measure is one."""
        over = "mini-batches" if np.isfinite(self.sharpness[row].low) else ""
        return {"measure": "", "over": over}

    @property
    def units_text(self) -> str:
        """The mini-batches that the interval is over, and the images."""
        return f"{number_of(self.batches, 'mini-batch')}, {self.images_text}"


def _gaussian_losses(
    objective: Objective, rho: float, directions: int
) -> Float[np.ndarray, " n"]:
    """The loss at distance rho in random directions, the same for every mini-batch.

    Each value is the mean of a direction and its opposite, in which odd orders cancel.
    """
    theta, values = objective.theta, []
    for draw in range(directions):
        generator = kit.stream(objective.run.seed, "sharpness", draw)
        noise = torch.randn(len(theta), generator=generator).to(theta)
        step = rho * noise / noise.norm()
        both = (objective.value(theta + step), objective.value(theta - step))
        values.append(sum(both) / 2)
    return np.array(values)


@kit.analysis
class Sharpness(kit.Analysis):
    """Increase of the training loss at a small distance from the weights (SAM, m-sharpness)."""

    name = "sharpness"
    full_precision = True
    group = "loss"
    needs = kit.Needs.OUTCOMES | kit.Needs.GRADIENTS | kit.Needs.TRAINING_IMAGES
    source = "Foret et al. (2021); Kwon et al. (2021)"
    claims = ("C3",)
    images = kit.Sizes(fewest=16, quick=160, standard=512, work=1.5)  # 160: ten mini-batches
    gives = LossIncrease

    measures: tuple[Literal["sam", "asam", "gaussian"], ...] = kit.option(
        ("sam", "asam", "gaussian"), "measures of sharpness"
    )
    mini_batch: int = kit.option(16, "images per mini-batch", minimum=1)
    rho: float | None = kit.option(
        None,
        "distance from the weights; none: 0.05 for sam, 0.5 for asam, 1 for gaussian",
        above=0,
    )
    steps: int = kit.option(1, "number of gradient ascent steps of sam and asam", minimum=1)
    directions: int = kit.option(
        8, "number of random directions of gaussian, each with its opposite", minimum=1, quick=2
    )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """What belongs to some of the measures."""
        ascent = {"sam", "asam"} & set(self.measures)
        return {
            "steps": (ascent, "measure sam or asam"),
            "directions": ("gaussian" in self.measures, "measure gaussian"),
        }

    def measure(self, subject: kit.Subject, run: kit.Run) -> tuple[kit.Result, ...]:
        """The mean sharpness of mini-batches."""
        subject = subject.in_mini_batches(self.mini_batch)
        objective = Objective(
            subject.model,
            subject.training_batches(self.mini_batch),
            run=subject.named(run, training=True),
        )
        return (self.of(objective),)

    def of(self, objective: Objective, *, run: kit.Run | None = None) -> LossIncrease:
        """The increase L(w + d) - L(w) of the loss at a distance rho, a mean over mini-batches.

        - ``"sam"``: d = rho g / |g| along the gradient g. With several ascent steps of length
          rho / steps, each along the gradient at the point reached, and |d| <= rho.
        - ``"asam"``: d = rho T² g / |T g| with T = |w| + 0.01 entry by entry, so that rescaling
          a layer and the inverse rescaling of the next change little; |d / T| <= rho.
        - ``"gaussian"``: the mean over random directions ±d, d = rho u / |u| with u normal.

        The gradient measures are lower bounds of the maximum within the distance; more steps
        come closer to it. SAM perturbs the weights for each mini-batch separately, so that the
        mean over the batches of the objective, the m-sharpness for batches of m images, is what
        it minimizes. It has an interval for at least 32 batches, see
        `visprism.core.statistics.heavy_tailed_interval`. For the sharpness of the mean loss
        over all images, give them as one batch.

        Cost for each batch: `steps` gradients and one evaluation for each gradient measure,
        `2 directions` evaluations for the Gaussian measure.

        Sources: Foret et al. (2021), eq. 2 and sec. 4; Kwon et al. (2021), eq. 8.
        """
        objective = objective.with_run(run)
        by_batch = [
            self._rises(objective.with_batches([batch], shared=False))
            for batch in objective.run.track(objective.batches, "mini-batches")
        ]
        rises = list(zip(*by_batch, strict=True))

        def average(name: str) -> Float[np.ndarray, " measures"]:
            return np.array([np.mean([rise[name] for rise in of]) for of in rises])

        sizes = [len(batch[1]) for batch in objective.batches]
        gaussian = np.array([measure == "gaussian" for measure in self.measures])
        increases = [np.array([rise["increase"] for rise in of]) for of in rises]
        return LossIncrease(
            measure=np.array(self.measures),
            rho=np.array(list(map(self._distance, self.measures))),
            steps=np.where(gaussian, 0, self.steps),
            sharpness=stacked(list(map(heavy_tailed, increases))),
            first_order=average("first_order"),
            loss=average("loss"),
            batches=len(sizes),
            directions=self.directions if gaussian.any() else 0,
            provenance=objective.run.measured(
                images=sum(sizes), batch_size=max(sizes), image_shape=objective.image_shape
            ),
        )

    def _distance(self, measure: str) -> float:
        return DEFAULT_RHO[measure] if self.rho is None else self.rho

    def _rises(self, objective: Objective) -> list[Rise]:
        """The increase of the loss of one batch by each measure."""
        theta, made = objective.theta, []
        gradient, loss = objective.gradient(theta), objective.value(theta)
        norm = gradient.cpu().double().norm().item()
        if not (np.isfinite(norm) and np.isfinite(loss)):
            raise kit.InputError(
                f"loss and gradient must be finite, got loss {loss:g} and gradient norm "
                f"{norm:g}. Check the weights and the images."
            )
        for measure in self.measures:
            distance, linear = self._distance(measure), float("nan")
            if measure == "gaussian":
                values = _gaussian_losses(objective, distance, self.directions) - loss
            else:
                step = self._ascent(objective, measure, gradient)
                values = np.array([objective.value(theta + step) - loss])
                if self.steps == 1:
                    linear = (gradient.cpu().double() @ step.cpu().double()).item()
            if not np.isfinite(values).all():
                raise kit.InputError(
                    f"the loss at distance {distance:g} must be finite for {measure}, got an "
                    f"increase of {values.mean():g}. The weights or the gradient are too large "
                    "or too small for their precision."
                )
            made.append({"increase": values.mean(), "first_order": linear, "loss": loss})
        return made

    def _ascent(
        self, objective: Objective, measure: str, gradient: Float[torch.Tensor, " p"]
    ) -> Float[torch.Tensor, " p"]:
        """The perturbation after all steps, the first along the gradient at the weights."""
        theta, length = objective.theta, self._distance(measure) / self.steps
        step = torch.zeros_like(theta)
        for number in range(self.steps):
            if number:
                gradient = objective.gradient(theta + step)
            step = step + sam_step([theta], [gradient], length, adaptive=measure == "asam")[0]
        return step

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One gradient, others for more steps, and 2 x directions evaluations for gaussian."""
        return kit.Cost(
            per_image=3.0 + 2.0 * self.directions, gradients=1.0 + 2.0 * (self.steps - 1)
        )


@kit.figure(width=2.4, height=2.0)
def _(result: LossIncrease, ax: Axes) -> Axes:
    """A point for each measure with its interval; faint points are mini-batches."""
    labels = []
    for x, (measure, rho, rise) in enumerate(
        zip(result.measure, result.rho, np.asarray(result.sharpness), strict=True)
    ):
        value = result.sharpness[x]
        if value.by_unit is not None and result.batches:
            ax.plot(np.full(len(value.by_unit), x), value.by_unit, ".", color=style.FAINT, ms=2)
        finite = np.isfinite(value.low)
        error = [[rise - value.low], [value.high - rise]] if finite else None
        ax.errorbar([x], [rise], yerr=error, fmt="o", color=style.INK, markersize=4, capsize=2)
        labels.append(f"{_NAMES[measure]}\n$\\rho$ = {rho:g}")
    ax.axhline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(labels)), labels=labels)
    ax.set(xlim=(-0.6, len(labels) - 0.4), ylabel=LossIncrease.infos()["sharpness"].heading)
    return ax
