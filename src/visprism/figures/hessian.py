"""Figures of Hessian spectra: `HessianCurves`, `HessianTally` and `Eigenvalues`."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from visprism.figures.registry import figure
from visprism.figures.style import DEPTH, FAINT, INK, tip
from visprism.measure.loss.curvature import Eigenvalues, HessianCurves, HessianTally
from visprism.measure.loss.curvature.eigenvalues import WORDS

MINUS = "\N{MINUS SIGN}"
_WIDTHS = (0.3, 0.64)  # of the negative and the positive part
_STYLES = ("-", "--", "-.", ":")  # of objectives
_OBJECTIVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # as of kinds of block


def _key(figure: Figure, axes: Sequence[Axes]) -> None:
    """What the curves are, once for all models."""
    lines: dict[str, Line2D] = {}
    for ax in axes:
        for part in [ax, *(child for child in ax.child_axes if isinstance(child, Axes))]:
            handles, labels = part.get_legend_handles_labels()
            lines |= dict(zip(labels, handles, strict=True))
    if len(lines) > 1:
        figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=2)


@figure(width=3.2, height=2.1, key=_key, key_height=0.45, share=False)
def _(result: HessianCurves, ax: Axes) -> Axes:
    """Magnitudes of negative eigenvalues on the left, of positive ones on the right."""
    ax.set_axis_off()
    below = ax.inset_axes((0.0, 0.0, _WIDTHS[0], 1.0))
    above = ax.inset_axes((1 - _WIDTHS[1], 0.0, _WIDTHS[1], 1.0), sharey=below)
    for part, sign in ((below, -1), (above, 1)):
        rows = result.select(result.sign == sign)
        for name, (colour, style) in _looks(result).items():
            own = rows.select(np.array([label == name for label in _labels(rows)], dtype=bool))
            if not len(own.value):
                continue
            part.plot(
                np.abs(own.value), own.density, color=colour, linestyle=style, linewidth=1.2,
                label=name, gid=tip(name),
            )  # fmt: skip
            part.fill_between(np.abs(own.value), own.density, color=colour, alpha=0.1, lw=0)
        if len(rows):
            _logarithmic(part, np.abs(rows.value), MINUS if sign < 0 else "")
        else:
            part.text(0.5, 0.5, "none", transform=part.transAxes, ha="center", color=FAINT)
            part.set_xticks([])
    below.set_ylim(bottom=0)
    if (result.sign < 0).any():
        below.invert_xaxis()
    above.tick_params(axis="y", labelleft=False)
    below.set(xlabel="negative", ylabel="Density per decade")
    above.set_xlabel("Eigenvalue of the Hessian")
    return ax


@figure(width=2.4, height=2.2, key=_key, key_height=0.45)
def _(result: HessianTally, ax: Axes) -> Axes:
    """RankSlice of negative eigenvalues against the mean of the positive ones, with intervals."""
    for row, (name, (colour, _)) in enumerate(_looks(result).items()):
        x, y = result.ape[row], result.nep[row]
        ax.errorbar(
            x,
            y,
            xerr=np.array([[x - result.ape_low[row]], [result.ape_high[row] - x]]),
            yerr=np.array([[y - result.nep_low[row]], [result.nep_high[row] - y]]),
            color=colour,
            marker="o",
            markersize=4,
            elinewidth=1.1,
            capsize=2,
            label=name,
            gid=tip(name),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.update_datalim([(result.ape[0], 0.0), (result.ape[0], 0.1)])
    ax.autoscale_view()
    ax.set(xlabel="Mean of positive eigenvalues (APE)", ylabel="Negative eigenvalues (NEP)")
    return ax


@figure(width=2.4, height=2.0)
def _(result: Eigenvalues, ax: Axes) -> Axes:
    """Eigenvalues by rank with their residuals; hollow where they have not converged."""
    ax.axhline(0, color=FAINT, linewidth=0.6, zorder=1)
    faces = [INK if done else "white" for done in result.converged]
    ax.errorbar(
        result.rank, result.value, yerr=result.residual, fmt="none", color=INK, capsize=2
    )
    ax.scatter(result.rank, result.value, color=faces, edgecolors=INK, s=18, zorder=3)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel=f"Rank ({WORDS[result.which]})", ylabel="Eigenvalue of the Hessian")
    return ax


def _logarithmic(ax: Axes, magnitudes: np.ndarray, sign: str) -> None:
    """A logarithmic axis with few ticks, each with its sign."""
    decades = np.log10(magnitudes.max() / magnitudes.min())
    room = 1.2 if sign else 3.0  # decades, that ticks at 1 and 3 fit into
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 3) if decades < room else (1,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{sign}{x:,g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _labels(result: HessianCurves | HessianTally) -> list[str]:
    """What each row is called: its phase, its data and its objective, where they differ."""
    columns = zip(
        result.phase.tolist(), result.data.tolist(), result.weight_decay.tolist(), strict=True
    )
    return [
        ", ".join(filter(None, (phase, data, "NLL + L2" if decay else "NLL")))
        for phase, data, decay in columns
    ]


def _looks(result: HessianCurves | HessianTally) -> dict[str, tuple]:
    """A colour and a line for each; phases run from dark to light."""
    phases = list(dict.fromkeys(result.phase.tolist()))
    pairs = zip(result.data.tolist(), result.weight_decay.tolist(), strict=True)
    objectives = list(dict.fromkeys(pairs))
    looks: dict[str, tuple] = {}
    rows = zip(_labels(result), result.phase, result.data, result.weight_decay, strict=True)
    for label, phase, data, decay in rows:
        n = objectives.index((data, decay))
        if len(phases) == 1:
            looks[label] = _OBJECTIVES[n % 4], _STYLES[n % 4]
        else:
            looks[label] = DEPTH(phases.index(phase) / (len(phases) - 1)), _STYLES[n % 4]
    return looks
