"""Figures of noise by frequency: `FrequencyRobustness` and `FourierSensitivity`."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.drawing.color_bars import UNIT, error_rate_bar
from visprism.drawing.depth import from_zero
from visprism.drawing.registry import figure
from visprism.drawing.style import KIND_COLORS, SIMILARITY, tip
from visprism.results.perturbations import FourierSensitivity, FrequencyRobustness


@figure(width=2.6, height=2.2)
def _(result: FrequencyRobustness, ax: Axes) -> Axes:
    """Accuracy drop under noise of each frequency band, with its 95% interval."""
    color = KIND_COLORS["conv"]
    ax.fill_between(
        result.frequency,
        np.where(np.isfinite(result.drop_low), result.drop_low, result.drop),
        np.where(np.isfinite(result.drop_high), result.drop_high, result.drop),
        color=color,
        alpha=0.18,
        linewidth=0,
    )
    ax.plot(result.frequency, result.drop, color=color, linewidth=1.1)
    for frequency, drop, rms in zip(result.frequency, result.drop, result.rms, strict=True):
        ax.plot(
            frequency,
            drop,
            marker="o",
            markersize=3.4,
            color=color,
            gid=tip(f"{frequency:.2f}π · drop {drop:.1%} · RMS {rms:.3f}"),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    infos = result.infos()
    ax.set(xlim=(0, 1), xlabel=infos["frequency"].heading, ylabel=infos["drop"].heading)
    from_zero(ax)
    return ax


@figure(width=2.5, height=2.4, key=error_rate_bar, key_width=0.7)
def _(result: FourierSensitivity, ax: Axes) -> Axes:
    """Error rate under noise of each frequency; the cross marks frequency 0."""
    # A file may hold a part of the plane, down to a single frequency.
    rows, columns = np.unique(result.vertical), np.unique(result.horizontal)
    image = np.full((len(rows), len(columns)), np.nan)
    image[
        np.searchsorted(rows, result.vertical), np.searchsorted(columns, result.horizontal)
    ] = result.error
    (bottom, top), (left, right) = _edges(rows), _edges(columns)
    ax.imshow(
        image,
        cmap=SIMILARITY,
        norm=UNIT,
        extent=(left, right, bottom, top),
        origin="lower",
        interpolation="nearest",
    )
    ax.plot(0, 0, marker="+", markersize=5, markeredgewidth=0.7, color="white")
    ax.set(xlabel="Horizontal frequency (cycles)", ylabel="Vertical frequency (cycles)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    return ax


def _edges(values: np.ndarray) -> tuple[float, float]:
    """The outer edges of cells centered at equally spaced values."""
    half = (values[1] - values[0]) / 2 if len(values) > 1 else 0.5
    return float(values[0] - half), float(values[-1] + half)
