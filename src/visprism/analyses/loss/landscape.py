"""Loss landscape around the weights, and its increase at exact distances.

Surfaces are those of `visprism.loss.landscape`, circles those of `visprism.loss.rings`. The
interval of an increase is over direction pairs and images.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from torch import nn

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.loss.checkpoints import stored_weights
from visprism.analyses.loss.landscape_figures import SURFACES
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.eigenvalues import top_eigenpairs
from visprism.loss.landscape import LossSurface, landscape
from visprism.loss.objective import Objective
from visprism.loss.planes import (
    Plane,
    Projection,
    State,
    plane_along,
    plane_through,
    principal_plane,
    project,
    random_planes,
)
from visprism.loss.points import batch_norms
from visprism.loss.rings import RADII, Rings, rings
from visprism.table.result import Result

_MAX_THROUGH = 2  # checkpoints besides the model that span a plane
_EIGENVECTOR_BATCHES = 8  # batches whose Hessian gives the eigenvectors


@ANALYSES.register
@dataclass(frozen=True)
class Landscape(Analysis):
    """Loss landscape around the weights, and its increase at exact distances."""

    name = "landscape"
    group = "loss"
    needs = Needs.TARGETS | Needs.TRAINING_IMAGES
    source = "Li et al. (2018); Park & Kim (2022), fig. 1a"
    claims = ("C15",)
    images = Sizes(fewest=16, quick=32, standard=512, work=6)
    rank = 3
    sections = (
        Section(
            Rings,
            "Increase of the loss with distance",
            "Mean increase of the NLL on circles around the weights, in several random planes "
            "(thin) and on average (bold). Intervals are over planes and images. For a model "
            "with BatchNorm both frozen and re-estimated statistics are shown. This figure "
            "orders two models only where both treatments give the same order.",
        ),
        Section(
            LossSurface,
            "Loss landscape",
            "The NLL at the weights (cross) and around them along two random filter-normalized "
            "directions, with frozen BatchNorm statistics. The bold contour is chance level, "
            "log(classes); beyond it, in gray, predictions are worse than a guess, and the "
            "loss grows with the scale of the logits. Compare models by the increase on "
            "circles, not by the look of a surface.",
            figures=SURFACES,
            table=False,
        ),
        Section(
            Projection,
            "Checkpoints in the plane",
            "The projection of each checkpoint onto the plane. Where the in-plane fraction is "
            "small, the loss at the projection is not that of the checkpoint.",
            figures={},
        ),
    )

    points: int = option(21, "number of grid points along each axis, odd", minimum=3, quick=11)
    reach: float = option(
        1.0, "half width of the grid, in units of the directions", above=0, maximum=1e6
    )
    grid_planes: int = option(1, "number of random planes with a grid", minimum=1)
    ring_planes: int = option(
        3, "number of random planes with circles around the weights", minimum=1
    )
    angles: int = option(8, "number of points on each circle, even", minimum=4)
    plane: Literal["random", "hessian"] = option(
        "random", "directions of the plane: random, or the two leading Hessian eigenvectors"
    )
    checkpoints: tuple[Path, ...] = option(
        (),
        "checkpoints of the same model through which the plane goes: 1 or 2, or 3 and more of "
        "one training run, in order",
    )
    normalization: Literal["filter", "layer", "none", "paper"] = option(
        "filter",
        "normalization of random directions: by filter, by layer, none, or as in the paper",
    )
    perturb_positions: bool = option(
        False,
        "random directions change position embeddings too",
    )
    batch_norm: Literal["frozen", "reestimated"] = option(
        "frozen", "BatchNorm statistics of the grid; the circles have both"
    )
    weight_decay: float | None = option(
        None,
        "weight decay of the L2 term; none: that in the checkpoint's recipe, or 0 without one",
        minimum=0,
    )
    train_images: Literal["clean", "augmented"] = option(
        "clean", "training images as they are, or augmented as in the strong recipe"
    )

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """Circles, surfaces, and the path of checkpoints."""
        run = subject.named(run, training=True)
        batches = subject.training_batches()
        if self.train_images == "augmented":
            batches = subject.augmented_batches(run.seed)
        wd = subject.weight_decay if self.weight_decay is None else self.weight_decay
        planes, path = self.planes_around(subject.model, batches, run)
        surface = landscape(
            subject.model,
            batches,
            planes,
            weight_decay=wd or 0.0,
            decayed=subject.decayed,
            batch_norm=self.batch_norm,
            run=run,
        )
        circles = rings(
            subject.model,
            batches,
            angles=self.angles,
            pairs=self.ring_planes,
            normalization=self.normalization,
            perturb_positions=self.perturb_positions,
            run=run,
        )
        return circles, surface, *([] if path is None else [path])

    def cost(self, subject: Subject) -> Cost:
        """One forward pass for each point, and another for re-estimated statistics."""
        grid = (
            self.grid_planes * self.points**2 * (2 if self.batch_norm == "reestimated" else 1)
        )
        treatments = 3 if batch_norms(subject.model) else 1
        return Cost(per_image=grid + treatments * self.ring_planes * self.angles * len(RADII))

    def planes_around(
        self, model: nn.Module, batches: Iterable, run: Run = DEFAULT_RUN
    ) -> tuple[list[Plane], Projection | None]:
        """Planes through the model's weights, and the projection of checkpoints onto the plane.

        With one or two checkpoints the plane goes through them; with more it holds the
        principal directions of their path. Otherwise the directions are random, or the
        eigenvectors of the two largest Hessian eigenvalues of the first 8 batches.

        Cost: for "hessian" about 25 Hessian-vector products, otherwise none.
        """
        if self.checkpoints:
            return _through(model, stored_weights(self.checkpoints), self.points, run)
        if self.plane == "hessian":
            objective = Objective(model, list(islice(batches, _EIGENVECTOR_BATCHES)), run=run)
            _, vectors = top_eigenpairs(objective, k=2, which="LA", tol=1e-2)
            first, second = (objective.unflatten(vector) for vector in vectors)
            grid = {"points": self.points, "reach": self.reach}
            return [plane_along(model, first, second, **grid)], None
        planes = random_planes(
            model,
            pairs=self.grid_planes,
            points=self.points,
            reach=self.reach,
            normalization=self.normalization,
            perturb_positions=self.perturb_positions,
            seed=run.seed,
        )
        return planes, None


def _through(
    model: nn.Module, states: Sequence[State], points: int, run: Run
) -> tuple[list[Plane], Projection]:
    if len(states) > _MAX_THROUGH:
        plane = principal_plane(model, states, points=points)
        path = [*states, model.state_dict()]
    else:
        plane = plane_through(model, states, points=points)
        path = [*states[:1], model.state_dict(), *states[1:]]
    return [plane], project(model, plane, path, run=run)
