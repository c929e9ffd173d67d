"""Blocks, parameters and arithmetic of a model."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from visprism import kit
from visprism.anatomy.blocks.anatomy import Costs, costs
from visprism.drawing import style
from visprism.drawing.depth import in_order, legend_above
from visprism.drawing.registry import figure

_WIDTH = 0.86  # of a slab; the rest is the gap to the next one
_STRIPS = {"macs": ("MACs", -1.35), "parameters": ("Parameters", -1.85)}  # label, baseline
_STRIP_HEIGHT = 0.38


@kit.analysis
class Anatomy(kit.Analysis):
    """Blocks of a model with their parameters and multiply-accumulates."""

    name = "anatomy"
    group = "model"
    source = "Park & Kim (2022), fig. 8"
    rank = 0
    gives = Costs

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Count parameters and arithmetic."""
        shape = subject.anatomy.image_shape
        origin = replace(run.provenance, image_shape=shape)
        return (replace(costs(subject.anatomy), provenance=origin),)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """The counts were taken when the model was dissected."""
        return kit.Cost(per_image=0)


def slabs_key(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A legend above: the kinds of block that occur."""
    kinds = in_order({label for ax in axes for label in ax.get_legend_handles_labels()[1]})
    legend_above(figure, {kind: Patch(color=style.color_of(kind)) for kind in kinds})


@figure(width=6.75, height=1.55, across=1, key=slabs_key, key_height=0.25)
def _(result: Costs, ax: Axes) -> Axes:
    """A bar per block in forward order, whose height grows with the side of its grid.

    Below: stages with their grids, then each block's share of multiplications and of weights,
    the largest being as high as the strip.
    """
    sides = np.sqrt(result.height * result.width)
    heights = np.sqrt(sides / sides.max())
    places = np.arange(len(result)) + 0.5
    ax.axhline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    shapes = ["x".join(map(str, s)) for s in zip(*_sizes(result), strict=True)]
    for place, height, name, kind, shape in zip(
        places, heights, result.block, result.kind, shapes, strict=True
    ):
        slab = ax.bar(
            place, height, _WIDTH, -height / 2, color=style.color_of(str(kind)), label=str(kind)
        )
        slab[0].set_gid(style.tip(f"{name} · {kind} · {shape}"))
    for column, (label, base) in _STRIPS.items():
        amount = getattr(result, column)
        ax.bar(
            places,
            _STRIP_HEIGHT * amount / max(1, amount.max()),
            _WIDTH,
            base,
            color=style.STRIP,
            label=f"_{label}",
        )
        ax.plot([0, len(result)], [base, base], color=style.FAINT, linewidth=0.4)
        ax.annotate(
            label,
            (0, base),
            xytext=(-3, 0),
            textcoords="offset points",
            ha="right",
            fontsize="small",
            color=style.FAINT,
        )
    for first, last, label in stages(result):
        ax.plot([first + 0.1, last + 0.9], [-0.58, -0.58], color=style.FAINT, linewidth=0.6)
        if (last + 1 - first) / len(result) > 0.0068 * len(label):  # else it runs into the next
            middle = (first + last + 1) / 2
            ax.text(middle, -0.63, label, ha="center", va="top", fontsize="small")
    ax.set(xlim=(0, len(result)), ylim=(-1.95, 0.55))
    ax.axis("off")
    return ax


def stages(result: Costs) -> list[tuple[int, int, str]]:
    """Runs of blocks on one grid: index of the first, of the last, and the grid."""
    on_grid = result.height * result.width > 1
    grids = [
        f"{height}x{width}" if spatial else str(channels)
        for channels, height, width, spatial in zip(*_sizes(result), on_grid, strict=True)
    ]
    runs = [list(run) for _, run in groupby(enumerate(grids), key=lambda pair: pair[1])]
    return [(run[0][0], run[-1][0], run[0][1]) for run in runs]


def _sizes(result: Costs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return result.channels, result.height, result.width
