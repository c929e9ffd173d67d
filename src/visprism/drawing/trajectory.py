"""Figures of trajectories: `Trajectory` in its plane of components, or in polar coordinates."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from visprism.drawing.registry import figure
from visprism.drawing.style import DEPTH, FAINT, STRIP, tip
from visprism.results.trajectory import Trajectory

_NOTES = {
    "components": "variance along other directions is not shown",
    "polar": "distance and direction from both ends only",
}


@figure(width=2.7, height=2.4, share=False)
def _(
    result: Trajectory, ax: Axes, *, view: Literal["components", "polar"] = "components"
) -> Axes:
    """A point for each snapshot, joined in order, from dark (first) to bright (last)."""
    if view == "polar":
        angle = np.where(np.isfinite(result.angle), result.angle, 0.0)
        x, y = result.radius * np.cos(angle), result.radius * np.sin(angle)
    else:
        x, y = result.first, result.second
    order = result.snapshot / max(1, len(result) - 1)
    places = np.stack([x, y], axis=1)
    ax.add_collection(
        LineCollection(
            list(np.stack([places[:-1], places[1:]], axis=1)),
            colors=DEPTH(order[1:]),
            linewidths=1.0,
            zorder=2,
        )
    )
    for number, (place, part) in enumerate(zip(places, order, strict=True)):
        far = f"snapshot {number} · radius {result.radius[number]:.3g}"
        ax.plot(*place, marker="o", markersize=3, color=DEPTH(part), zorder=3, gid=tip(far))
    for place, name in ((places[0], "first"), (places[-1], "last")):
        ax.annotate(
            name, tuple(place), xytext=(4, 4), textcoords="offset points", fontsize="x-small"
        )
    if view == "polar":
        turn = np.linspace(0, np.pi, 90)
        for radius in (0.5, 1.0):
            ring = radius * np.cos(turn), radius * np.sin(turn)
            ax.plot(*ring, color=STRIP, linewidth=0.5, zorder=0, label="_ring")
        ax.set(xlabel="r cos θ", ylabel="r sin θ")
    else:
        shares = [f"{s:.0%}" for s in (result.first_share, result.second_share)]
        ax.set(
            xlabel=f"First component ({shares[0]} of the variance)",
            ylabel=f"Second ({shares[1]})",
        )
    ax.set_aspect("equal", adjustable="datalim")
    ax.text(
        0.5,
        1.0,
        _NOTES[view],
        transform=ax.transAxes,
        ha="center",
        va="top",
        fontsize="x-small",
        style="italic",
        color=FAINT,
    )
    return ax
