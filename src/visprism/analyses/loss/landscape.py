"""Loss landscape around the weights, and its increase at exact distances.

Surfaces come from `visprism.loss.landscape`, circles from `visprism.loss.loss_by_distance`. The
interval of an increase is over direction pairs and images.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import nn

from visprism import kit
from visprism.analyses.loss.checkpoints import stored_weights
from visprism.drawing import registry, style
from visprism.drawing.color_bars import color_bar
from visprism.drawing.losses import CHANCE_POSITION, LOSSES, loss_scale
from visprism.drawing.shapes import value_bar
from visprism.loss import landscape, loss_by_distance
from visprism.loss import planes as weight_planes
from visprism.loss.eigenvalues import top_eigenpairs
from visprism.loss.objective import Objective
from visprism.loss.points import batch_norms

View = Literal["contour", "slices"]
Quantity = Literal["nll", "accuracy"]

LABELS = {name: landscape.LossSurface.infos()[name].heading for name in ("nll", "accuracy")}
AXES = {
    "random": ("First random direction", "Second random direction"),
    "given": ("First direction", "Second direction"),
}
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of contour lines, as fractions of log(classes)
# On the colors of losses, which are the same on a dark page; white and INK are not.
_LIGHT, _DARK = "ivory", "black"
_CUT = 2.5  # a slice ends above this many log(classes)


def loss_bar(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A color bar at the side, of one scale for all axes; none next to slices."""
    drawn = [artist for ax in axes for artist in (*ax.images, *ax.collections)]
    losses = [artist for artist in drawn if artist.get_label() == LABELS["nll"]]
    if not losses:
        value_bar(figure, axes)
        return
    scale: Any = losses[0].norm
    chance = scale.linthresh
    bar = color_bar(figure, axes, LABELS["nll"], mappable=losses[0], aspect=22)
    ticks = [f * chance for f in (0, 0.25, 0.5, 0.75, 1, 10, 100)]
    labels = ["0", "¼ log K", "½ log K", "¾ log K", "log K", "10 log K", "100 log K"]
    if len({loss.norm.vmax for loss in losses}) == 1:  # as many classes in all
        labels = [f"{loss:.3g}" for loss in ticks]
        labels[4] = f"log {np.exp(chance):.0f} = {labels[4]}"
    bar.set_ticks(ticks, labels=labels)
    bar.ax.minorticks_off()


@registry.figure(width=2.6, height=2.3, share=False, key=loss_bar, key_width=0.8)
def _(
    result: landscape.LossSurface,
    ax: Axes,
    *,
    view: View = "contour",
    quantity: Quantity = "nll",
    pair: int = 0,
    path: weight_planes.Projection | None = None,
) -> Axes:
    """One plane, or slices through all.

    `path` is drawn on contours: snapshots or checkpoints in their order.
    """
    if view == "slices":
        return _slices(ax, result, quantity)
    rows, pairs = result.select(result.pair == pair), len(np.unique(result.pair))
    _contour(ax, rows, quantity, path)
    if pairs > 1:
        which, at = f"pair {pair + 1} of {pairs}", {"xy": (0.98, 0.02), "ha": "right"}
        box = {"facecolor": _LIGHT, "alpha": 0.7, "linewidth": 0, "pad": 1}
        text = {"fontsize": "x-small", "color": _DARK, "bbox": box}
        ax.annotate(which, xycoords="axes fraction", **text, **at)
    return ax


def _contour(
    ax: Axes,
    rows: landscape.LossSurface,
    quantity: Quantity,
    path: weight_planes.Projection | None,
) -> Axes:
    """Colors, and contour lines; the bold one is chance level, log(classes)."""
    a, b = np.unique(rows.a), np.unique(rows.b)
    table = np.asarray(getattr(rows, quantity)).reshape(len(b), len(a))
    half = [(axis[1] - axis[0]) / 2 for axis in (a, b)]
    norm, colors = _scale(rows, quantity)
    ax.imshow(
        np.ma.masked_invalid(table),
        extent=(a[0] - half[0], a[-1] + half[0], b[0] - half[1], b[-1] + half[1]),
        origin="lower",
        norm=norm,
        cmap=colors,
        interpolation="bilinear",
        aspect="auto",
        label=LABELS[quantity],
    )
    if quantity == "nll":
        with np.errstate(invalid="ignore"):
            inside = np.where(np.isfinite(table), table, np.nanmax(table[np.isfinite(table)]))
        chance = float(np.log(max(2, rows.classes)))
        fine = [f * chance for f in _LEVELS]
        ax.contour(a, b, inside, levels=fine, colors=_LIGHT, linewidths=0.4, alpha=0.7)
        ax.contour(a, b, inside, levels=[chance], colors=_DARK, linewidths=1.1)
    if path is not None:
        ax.plot(path.a, path.b, color=_LIGHT, linewidth=2.2, label="_path")
        ax.plot(path.a, path.b, color=_DARK, linewidth=0.9, marker="o", markersize=2.2)
    ax.plot(0, 0, marker="+", color=_LIGHT, markersize=6, gid=style.tip("the model's weights"))
    across, along = AXES[rows.plane]
    ax.set(xlim=(a[0], a[-1]), ylim=(b[0], b[-1]), xlabel=across, ylabel=along)
    ax.set_aspect("equal")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    return ax


def _slices(ax: Axes, result: landscape.LossSurface, quantity: Quantity) -> Axes:
    """The values along each direction through the weights; bold, their mean."""
    lines: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in np.unique(result.pair):
        rows = result.select(result.pair == pair)
        for along, across in ((rows.a, rows.b), (rows.b, rows.a)):
            on = np.abs(across) == np.abs(across).min()
            lines.append((along[on], np.asarray(getattr(rows, quantity))[on]))
    for along, values in lines:
        ax.plot(
            along,
            np.ma.masked_invalid(values),
            color=style.STRIP,
            linewidth=0.7,
            label="_slice",
        )
    if all(np.array_equal(x, lines[0][0]) for x, _ in lines):
        mean = np.mean([values for _, values in lines], axis=0)
        ax.plot(
            lines[0][0],
            np.ma.masked_invalid(mean),
            color=style.INK,
            linewidth=1.4,
            label="mean",
        )
    if quantity == "nll" and result.classes > 1:
        chance = float(np.log(result.classes))
        ax.axhline(
            chance, color=style.INK, linewidth=0.8, linestyle=(0, (4, 2)), label="_chance"
        )
        ax.annotate(
            f"log {result.classes}",
            (1, chance),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            textcoords="offset points",
            ha="right",
            fontsize="x-small",
        )
        ax.set_ylim(0, _CUT * chance)  # the same for every model of as many classes
    if quantity == "accuracy":
        ax.set_ylim(0, 1)
    ax.set(
        xlabel=AXES[result.plane][0].replace("First random", "Random"), ylabel=LABELS[quantity]
    )
    return ax


def _scale(rows: landscape.LossSurface, quantity: Quantity) -> tuple[Normalize, Colormap]:
    if quantity == "nll":
        return loss_scale(rows.classes), LOSSES
    return Normalize(0, 1), style.SIMILARITY


_STYLES = {"frozen": "-", "reestimated": "--"}


@registry.figure(width=2.6, height=2.2)
def _(result: loss_by_distance.LossByDistance, ax: Axes) -> Axes:
    """The mean over angles: thin lines for direction pairs, bold for their mean."""
    low, high = result.intervals_of("rise")
    for treatment, rows in result.treatments().items():
        dashes, radii, rise = _STYLES[treatment], result.radius[rows], result.rise[rows]
        by_pair = getattr(rise, "by_unit", None)
        for values in [] if by_pair is None else by_pair:
            ax.plot(
                radii, values, color=style.STRIP, linewidth=0.7, linestyle=dashes, label="_pair"
            )
        values = np.asarray(rise)
        error = np.stack([values - low[rows], high[rows] - values])
        ax.errorbar(
            radii,
            values,
            yerr=error if np.isfinite(error).all() else None,
            color=style.INK,
            linewidth=1.4,
            linestyle=dashes,
            elinewidth=0.7,
            marker="o",
            markersize=3,
            markerfacecolor=style.INK if dashes == "-" else "white",
            label=landscape.BATCH_NORM_LABELS[treatment] if result.has_batch_norm else "mean",
        )
    if result.has_batch_norm:
        style.legend(ax, fontsize="x-small", frameon=False, handlelength=3.2)
    infos, norm = loss_by_distance.LossByDistance.infos(), result.normalization
    label = f"{infos['radius'].label} ({norm}-normalized)" if norm != "none" else "Distance r"
    # The vertical axis, which models share, ends where a loss depends on the scale of the
    # logits, and at 0: intervals of few pairs end far below.
    most = _CUT * float(np.log(result.classes)) if result.classes > 1 else np.inf
    lowest, highest = ax.dataLim.intervaly
    ax.dataLim.intervaly = max(lowest, min(0.0, np.min(result.rise))), min(highest, most)
    ax.set(xlabel=label, ylabel=infos["rise"].heading, xlim=(0, None))
    return ax


@registry.surface_of.register
def _(result: landscape.LossSurface) -> dict[str, Any]:
    """The NLL over the first plane, on the scale of the figures."""
    scale = loss_scale(result.classes)
    height = np.ma.filled(scale(result.table("nll", int(result.pair[0]))), 1.0)
    cells = (height[1:, 1:] + height[1:, :-1] + height[:-1, 1:] + height[:-1, :-1]) / 4
    return {
        "height": height.round(4).tolist(),
        "color": [[to_hex(LOSSES(z)) for z in row] for row in cells.tolist()],
        "level": {"height": CHANCE_POSITION, "label": f"log {result.classes}"},
        "axes": ["1st direction", "2nd direction"],
    }


_EIGENVECTOR_BATCHES = 8  # batches whose Hessian gives the eigenvectors


@kit.analysis
class Landscape(kit.Analysis):
    """Loss landscape around the weights, and its increase at exact distances."""

    name = "landscape"
    group = "loss"
    needs = kit.Needs.OUTCOMES | kit.Needs.TRAINING_IMAGES
    source = "Li et al. (2018); Park & Kim (2022), fig. 1a"
    claims = ("C15",)
    images = kit.Sizes(fewest=16, quick=32, standard=512, work=6)
    rank = 3
    gives = (
        loss_by_distance.LossByDistance,
        landscape.LossSurface,
        weight_planes.Projection,
    )

    points: int = kit.option(
        21, "number of grid points along each axis, odd", minimum=3, quick=11
    )
    reach: float = kit.option(
        1.0, "half width of the grid, in units of the directions", above=0, maximum=1e6
    )
    grid_planes: int = kit.option(1, "number of random planes with a grid", minimum=1)
    ring_planes: int = kit.option(
        3, "number of random planes with circles around the weights", minimum=1
    )
    angles: int = kit.option(8, "number of points on each circle, even", minimum=4)
    plane: Literal["random", "hessian"] = kit.option(
        "random", "directions of the plane: random, or the two leading Hessian eigenvectors"
    )
    checkpoints: tuple[Path, ...] = kit.option(
        (),
        "at least 2 checkpoints of the same model, such as of one training run in order: the "
        "plane has the principal directions of their path",
    )
    scaling: Literal["filter", "layer", "none", "paper"] = kit.option(
        "filter", "scaling of random directions: by filter, by layer, none, or as in the paper"
    )
    perturb_positions: bool = kit.option(
        False, "random directions change position embeddings too"
    )
    batch_norm: Literal["frozen", "reestimated"] = kit.option(
        "frozen",
        "BatchNorm statistics of the grid, always re-estimated through checkpoints; the "
        "circles have both",
    )
    train_images: Literal["clean", "augmented"] = kit.option(
        "clean", "training images as they are, or augmented as in the strong recipe"
    )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """What belongs to some of the planes."""
        random = self.plane == "random"
        return {
            "checkpoints": (random, "plane random"),
            "grid_planes": (random and not self.checkpoints, "random planes"),
            "reach": (not self.checkpoints, "a random or Hessian plane"),
        }

    def measure(self, subject: kit.Subject, run: kit.Run) -> tuple[kit.Result, ...]:
        """Circles, surfaces, and the path of checkpoints."""
        augmented = self.train_images == "augmented"
        run = subject.named(run, training=True, augmented=augmented)
        batches = subject.training_batches()
        if augmented:
            batches = subject.augmented_batches(run.seed)
        planes, path = self.planes_around(subject.model, batches, run)
        surface = landscape.landscape(
            subject.model,
            batches,
            planes,
            batch_norm=self._treatment,
            run=run,
        )
        circles = loss_by_distance.loss_by_distance(
            subject.model,
            batches,
            angles=self.angles,
            pairs=self.ring_planes,
            normalization=self.scaling,
            perturb_positions=self.perturb_positions,
            run=run,
        )
        return circles, surface, *([] if path is None else [path])

    @property
    def _treatment(self) -> Literal["frozen", "reestimated"]:
        """Running statistics of the model fit no checkpoint."""
        return "reestimated" if self.checkpoints else self.batch_norm

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One forward pass for each point, and another for re-estimated statistics."""
        passes = 2 if self._treatment == "reestimated" else 1
        grid = self.grid_planes * self.points**2 * passes
        treatments = 3 if batch_norms(subject.model) else 1
        return kit.Cost(
            per_image=grid
            + treatments * self.ring_planes * self.angles * len(loss_by_distance.RADII)
        )

    def planes_around(
        self, model: nn.Module, batches: Iterable, run: kit.Run = kit.DEFAULT_RUN
    ) -> tuple[list[weight_planes.Plane], weight_planes.Projection | None]:
        """Planes through the model's weights, and the projection of checkpoints onto the plane.

        With checkpoints the plane holds the principal directions of their path. Otherwise the
        directions are random, or the eigenvectors of the two largest Hessian eigenvalues of the
        first 8 batches.

        Cost: for "hessian" about 25 Hessian-vector products, otherwise none.
        """
        if self.checkpoints:
            states = stored_weights(self.checkpoints)
            plane = weight_planes.principal_plane(model, states, points=self.points)
            return [plane], weight_planes.project(
                model, plane, [*states, model.state_dict()], run=run
            )
        if self.plane == "hessian":
            objective = Objective(model, list(islice(batches, _EIGENVECTOR_BATCHES)), run=run)
            _, vectors = top_eigenpairs(objective, k=2, which="LA", tol=1e-2)
            first, second = (objective.unflatten(vector) for vector in vectors)
            grid = {"points": self.points, "reach": self.reach}
            return [weight_planes.plane_along(model, first, second, **grid)], None
        planes = weight_planes.random_planes(
            model,
            pairs=self.grid_planes,
            points=self.points,
            reach=self.reach,
            normalization=self.scaling,
            perturb_positions=self.perturb_positions,
            seed=run.seed,
        )
        return planes, None
