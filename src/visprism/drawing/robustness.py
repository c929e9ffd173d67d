"""Figures of robustness: `Robustness`, `CorruptionErrors`, `Stability`."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from visprism.analyses.predictions.corruptions import CLEAN, CorruptionErrors, Robustness
from visprism.analyses.predictions.stability import Stability
from visprism.drawing.color_bars import UNIT, error_rate_bar
from visprism.drawing.depth import from_zero
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, KIND_COLORS, SIMILARITY, tip

_WHITE_BELOW = 0.6  # error rate below which the cell is dark


@figure(width=2.9, height=3.3, key=error_rate_bar, key_width=0.7, share=False)
def _(result: Robustness, ax: Axes) -> Axes:
    """Error rate of each corruption and severity, in percent."""
    rows = result.select(result.metric == "accuracy")
    names = list(dict.fromkeys(rows.corruption.tolist()))
    severities = sorted({*rows.severity[rows.corruption != CLEAN[0]].tolist()} or {0})
    for name, severity, accuracy in zip(
        rows.corruption.tolist(), rows.severity.tolist(), rows.value.tolist(), strict=True
    ):
        clean, error = name == CLEAN[0], 1 - accuracy
        first = 0 if clean else severities.index(severity)
        place = first, len(names) - 1 - names.index(name)
        wide = len(severities) if clean else 1
        cell = Rectangle(place, wide, 1, facecolor=SIMILARITY(UNIT(error)), edgecolor="white")
        cell.set_gid(tip(f"{readable(name)} · severity {severity} · error rate {error:.1%}"))
        ax.add_patch(cell)
        ax.text(
            place[0] + wide / 2,
            place[1] + 0.5,
            percent(error),
            ha="center",
            va="center",
            fontsize=6,
            color="white" if error < _WHITE_BELOW else "black",
        )
    ax.set_yticks(np.arange(len(names)) + 0.5, [readable(name) for name in names[::-1]])
    ax.set_xticks(np.arange(len(severities)) + 0.5, [str(s) for s in severities])
    ax.set(xlim=(0, len(severities)), ylim=(0, len(names)), xlabel="Severity")
    ax.tick_params(length=0)
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    return ax


@figure(width=2.9, height=2.9, share=False)
def _(result: CorruptionErrors, ax: Axes) -> Axes:
    """Error rate of each corruption, with that of clean images and of the reference."""
    place = np.arange(len(result))[::-1]
    bars = ax.barh(place, result.error, height=0.72, color=KIND_COLORS["conv"])
    for bar, name, error in zip(
        bars, result.corruption.tolist(), result.error.tolist(), strict=True
    ):
        bar.set_gid(tip(f"{readable(name)} · error rate {error:.1%}"))
    if np.isfinite(result.reference).any():
        ax.plot(
            result.reference, place, linestyle="none", marker="|", markersize=8, color=INK,
            markeredgewidth=1.2, label="reference",
        )  # fmt: skip
    if np.isfinite(result.clean_error):
        ax.axvline(result.clean_error, color=FAINT, linewidth=0.9, linestyle=(0, (3, 2)))
    _named(ax, result.corruption, place)
    ax.set_xlabel("Error rate (dashed: clean images)")
    return ax


@figure(width=2.7, height=2.3)
def _(result: Stability, ax: Axes) -> Axes:
    """Flip rate of each perturbation with its 95% interval."""
    place = np.arange(len(result))
    bars = ax.bar(place, result.flip_rate, width=0.72, color=KIND_COLORS["downsample"])
    for bar, name, rate in zip(
        bars, result.perturbation.tolist(), result.flip_rate.tolist(), strict=True
    ):
        bar.set_gid(tip(f"{readable(name)} · {rate:.2%} of frames"))
    ax.vlines(place, result.flip_low, result.flip_high, color=INK, linewidth=0.9)
    labels = [readable(name) for name in result.perturbation.tolist()]
    ax.set_xticks(place, labels, rotation=45, ha="right", rotation_mode="anchor")
    ax.tick_params(axis="x", length=0)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set_ylabel("Flip rate")
    from_zero(ax)
    return ax


def _named(ax: Axes, names: np.ndarray, place: np.ndarray) -> None:
    ax.set_yticks(place, [readable(name) for name in names.tolist()])
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlim(0, 1)


def percent(fraction: float) -> str:
    """A fraction in whole percent; 0 and 100 are exactly none and all.

    Example:
        >>> percent(0.125), percent(1 - 0.995), percent(0.999), percent(1.0)
        ('13', '1', '>99', '100')
    """
    hundred = round(100 * fraction, 9)  # 1 - 0.875 and 0.125 alike
    if 0 < hundred < 0.5:
        return "<1"
    if 99.5 <= hundred < 100:
        return ">99"
    return str(int(hundred + 0.5))


def readable(name: str) -> str:
    """The name of a corruption as text."""
    return name.replace("_", " ").replace("jpeg", "JPEG").capitalize().replace("Jpeg", "JPEG")
