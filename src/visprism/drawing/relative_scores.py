"""Figure of `RelativeScores`: a picture for each head."""

from math import ceil, sqrt

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, tip
from visprism.results.weights import RelativeScores

_COLORS = "Grays"
_MOST = 49  # heads


@figure(width=2.4, height=2.75, share=False)
def _(result: RelativeScores, ax: Axes) -> Axes:
    """Attention weights of each head by offset, from 0 (white) to the largest (black).

    The cross marks the query. Of more than 49 heads the first 49 are drawn.
    """
    heads = np.unique(result.head)[:_MOST]
    across = ceil(sqrt(len(heads)))
    sides = int(result.dy.max()) * 2 + 1, int(result.dx.max()) * 2 + 1
    width, step = sides[1] / sides[0], 1.2  # a picture is 1 high
    largest = result.weight.max()
    for i, head in enumerate(heads):
        rows = result.select(result.head == head)
        down, right = divmod(i, across)
        left, top = right * step * width, down * step
        extent = (left, left + width, top + 1, top)
        ax.imshow(
            rows.weight.reshape(sides),
            cmap=_COLORS,
            vmin=0,
            vmax=largest,
            extent=extent,
            interpolation="nearest",
        )
        best = rows.select(np.array([rows.weight.argmax()]))
        offset = f"{best.dy[0]:+d} rows, {best.dx[0]:+d} columns"
        frame = Rectangle((left, top), width, 1, fill=False, edgecolor=INK, linewidth=0.4)
        frame.set_gid(tip(f"head {head} · largest weight {best.weight[0]:.3g} at {offset}"))
        ax.add_patch(frame)
        ax.plot(
            left + width / 2,
            top + 0.5,
            marker="+",
            markersize=4,
            markeredgewidth=0.7,
            color="#D55E00",
        )
    ax.set(
        xlim=(-0.03, (across - 1) * step * width + width + 0.03),
        ylim=(ceil(len(heads) / across) * step - 0.12, -0.05),
    )
    ax.axis("off")
    ax.annotate(
        f"black: attention weight {largest:.3g}",
        (1, 0),
        xycoords="axes fraction",
        xytext=(0, -2),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=6,
        color=FAINT,
    )
    return ax
