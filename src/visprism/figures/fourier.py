"""Figures of the Fourier analysis: `Spectrum` (fig. 2a of the paper), `HighFrequency` (8)."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MultipleLocator

from visprism.figures.depth import against_depth, depth_bar, kinds_key
from visprism.figures.registry import figure
from visprism.figures.style import DEPTH, tip
from visprism.results.branch_transfer import BranchTransfer
from visprism.results.fourier import HighFrequency, Spectrum

PROFILES = {"diagonal": "Frequency along each axis", "radial": "Radial frequency"}
REFERENCES = {"mean": "the mean", "lowest": "the lowest frequency"}


@figure(width=2.5, height=2.3, key=depth_bar, key_width=0.75)
def _(result: Spectrum, ax: Axes) -> Axes:
    """Log amplitude minus that of frequency 0, a curve per block, colored by depth."""
    blocks = list(dict.fromkeys(result.block.tolist()))
    for name in blocks:
        rows = result.select(result.block == name)
        color = DEPTH(float(rows.depth[0]))
        low, high = rows.intervals_of("relative")
        if np.isfinite([low, high]).all():
            ax.fill_between(rows.frequency, low, high, color=color, alpha=0.16, linewidth=0)
        ax.plot(
            rows.frequency,
            rows.relative,
            color=color,
            linewidth=1.1,
            label=name,
            gid=tip(f"{name} · {rows.kind[0]} · depth {rows.depth[0]:.2f}"),
        )
    first = result.select(result.block == blocks[0])
    ax.annotate(
        str(first.kind[0]),
        (first.frequency[-1], first.relative[-1]),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize="small",
        color=DEPTH(float(first.depth[0])),
        path_effects=[withStroke(linewidth=1.5, foreground="white")],
    )
    ax.xaxis.set_major_locator(MultipleLocator(0.2))
    ax.set(
        xlim=(0, max(1.0, result.frequency.max())),
        xlabel=f"{PROFILES[result.profile]} (π rad/pixel)",
        ylabel="Δ log amplitude",
    )
    return ax


@figure(width=2.5, height=2.3, key=depth_bar, key_width=0.75)
def _(result: BranchTransfer, ax: Axes) -> Axes:
    """Log gain by frequency, a curve per residual branch, colored by depth."""
    for name in dict.fromkeys(result.block.tolist()):
        rows = result.select(result.block == name)
        color = DEPTH(float(rows.depth[0]))
        low, high = rows.intervals_of("gain")
        if np.isfinite([low, high]).all():
            ax.fill_between(rows.frequency, low, high, color=color, alpha=0.16, linewidth=0)
        gid = tip(f"{name} · {rows.kind[0]} · depth {rows.depth[0]:.2f}")
        ax.plot(rows.frequency, rows.gain, color=color, linewidth=1.1, label=name, gid=gid)
    ax.set(
        xlim=(0, max(1.0, result.frequency.max())),
        xlabel=f"{PROFILES[result.profile]} (π rad/pixel)",
        ylabel="Log gain of the branch",
    )
    return ax


@figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: HighFrequency, ax: Axes, *, reference: Literal["mean", "lowest"] = "mean"
) -> Axes:
    """Log amplitude at the highest frequency minus that of a reference, against depth."""
    name = {"mean": "relative", "lowest": "relative_lowest"}[reference]
    against_depth(ax, result, name)
    ax.set_ylabel(f"Δ log amplitude, highest\nfrequency to {REFERENCES[reference]}")
    return ax
