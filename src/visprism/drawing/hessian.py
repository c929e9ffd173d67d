"""Figures of Hessian spectra: `HessianCurves`, `HessianSummary` and `Eigenvalues`."""

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

from visprism.drawing.registry import figure
from visprism.drawing.style import DEPTH, FAINT, INK, KIND_COLORS, tip
from visprism.results.hessian import HessianCurves
from visprism.results.hessian_summary import HessianSummary
from visprism.results.loss import WHICH_LABELS, Eigenvalues, Sharpness, SpectralDensity

MINUS = "\N{MINUS SIGN}"
_WIDTHS = (0.3, 0.64)  # of the negative and the positive part
_STYLES = ("-", "--", "-.", ":")  # of objectives
_OBJECTIVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # as of kinds of block


def _key(figure: Figure, axes: Sequence[Axes]) -> None:
    """A legend of the curves, once for all models."""
    lines: dict[str, Line2D] = {}
    for ax in axes:
        for part in [ax, *(child for child in ax.child_axes if isinstance(child, Axes))]:
            handles, labels = part.get_legend_handles_labels()
            lines |= dict(zip(labels, handles, strict=True))
    if len(lines) > 1:
        figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=2)


def _curves_key(figure: Figure, axes: Sequence[Axes]) -> None:
    """The legend; models share the axes of each of the two parts."""
    for parts in zip(*(ax.child_axes for ax in axes), strict=True):
        with_values = [part for part in parts if isinstance(part, Axes) and part.has_data()]
        for part in with_values:
            lows, highs = zip(*(sorted(p.get_xlim()) for p in with_values), strict=True)
            limits = min(lows), max(highs)
            part.set_xlim(limits[::-1] if part.xaxis_inverted() else limits)
            _few_ticks(part)
            part.set_ylim(top=max(p.get_ylim()[1] for p in with_values))
    _key(figure, axes)


@figure(width=3.2, height=2.1, key=_curves_key, key_height=0.45, share=False)
def _(result: HessianCurves, ax: Axes) -> Axes:
    """Magnitudes of negative eigenvalues on the left, of positive ones on the right.

    Fewer than 10 eigenvalues of a sign are drawn as marks, without a density; a row for each
    objective where no curve is drawn.
    """
    ax.set_axis_off()
    quantity = HessianCurves.infos()["value"].label
    below = ax.inset_axes((0.0, 0.0, _WIDTHS[0], 1.0))
    above = ax.inset_axes((1 - _WIDTHS[1], 0.0, _WIDTHS[1], 1.0), sharey=below)
    styles = _styles(result)
    densities = bool(np.isfinite(result.density).any())
    for part, sign in ((below, -1), (above, 1)):
        rows = result.select(result.sign == sign)
        for number, (name, (color, style)) in enumerate(styles.items()):
            curve = rows.select(
                np.array([label == name for label in _labels(rows)], dtype=bool)
            )
            magnitudes, drawing = np.abs(curve.value), {"color": color, "label": name}
            if not len(magnitudes):
                continue
            if np.isnan(curve.density).any():  # too few eigenvalues for a density
                heights = np.full(len(magnitudes), 0.0 if densities else -number)
                part.plot(magnitudes, heights, "|", markersize=9, gid=tip(name), **drawing)
                continue
            part.plot(
                magnitudes, curve.density, linestyle=style, linewidth=1.2, gid=tip(name),
                **drawing,
            )  # fmt: skip
            part.fill_between(magnitudes, curve.density, color=color, alpha=0.1, lw=0)
        if len(rows):
            part.set_xscale("log")
            _few_ticks(part, MINUS if sign < 0 else "")
        else:
            text = "none of the\nleading ones"
            part.text(0.5, 0.5, text, transform=part.transAxes, ha="center", color=FAINT)
            part.set_xticks([])
    if densities:
        below.set_ylim(bottom=0)
        below.set_ylabel("Density per decade")
    else:
        below.set_ylim(0.6 - len(styles), 0.6)
        below.set_yticks([])
    if (result.sign < 0).any():
        below.invert_xaxis()
    above.tick_params(axis="y", labelleft=False)
    below.set_xlabel("negative")
    above.set_xlabel(quantity)
    return ax


@figure(width=2.4, height=2.2, key=_key, key_height=0.45, share_values=True)
def _(result: HessianSummary, ax: Axes) -> Axes:
    """NEP against APE, with their intervals over mini-batches where there are any."""
    for row, (name, (color, _)) in enumerate(_styles(result).items()):
        x, y = result.ape[row], result.nep[row]
        ax.errorbar(
            x,
            y,
            xerr=_error_bar(x, result.ape_low[row], result.ape_high[row]),
            yerr=_error_bar(y, result.nep_low[row], result.nep_high[row]),
            color=color,
            marker="o",
            markersize=4,
            elinewidth=1.1,
            capsize=2,
            label=name,
            gid=tip(name),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.update_datalim([(0.0, 0.0), (1.15 * np.nanmax([*result.ape, 0.0]), 0.1)])
    ax.autoscale_view()
    ax.set(xlabel="Average positive eigenvalue (APE)", ylabel="Negative eigenvalues (NEP)")
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
    ax.set(
        xlabel=f"Rank ({WHICH_LABELS[result.which]})", ylabel=Eigenvalues.infos()["value"].label
    )
    return ax


def _error_bar(value: float, low: float, high: float) -> np.ndarray | None:
    """Lengths of an error bar; none without an interval."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return None
    return np.array([[max(value - low, 0.0)], [max(high - value, 0.0)]])


def _few_ticks(ax: Axes, sign: str | None = None) -> None:
    """Few ticks on a logarithmic axis, each with its sign; None: the sign that it has."""
    low, high = sorted(ax.get_xlim())
    if sign is None:
        sign = MINUS if ax.xaxis_inverted() else ""
    limit = 1.2 if sign else 3.0  # decades up to which ticks at 1 and 3 fit
    decades = np.log10(high / low)
    if decades < 0.7:  # there may be no such number
        ax.xaxis.set_major_locator(MaxNLocator(1 if sign else 3, steps=[1, 2, 5, 10]))
    else:
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 3) if decades < limit else (1,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{sign}{x:,g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _labels(result: HessianCurves | HessianSummary) -> list[str]:
    """The name of each row: phase, data and objective."""
    columns = zip(
        result.phase.tolist(), result.data.tolist(), result.weight_decay.tolist(), strict=True
    )
    return [
        ", ".join(filter(None, (phase, data, "NLL + L2" if decay else "NLL")))
        for phase, data, decay in columns
    ]


def _styles(result: HessianCurves | HessianSummary) -> dict[str, tuple]:
    """Color and line style of each name; phases run from dark to light."""
    phases = list(dict.fromkeys(result.phase.tolist()))
    pairs = zip(result.data.tolist(), result.weight_decay.tolist(), strict=True)
    objectives = list(dict.fromkeys(pairs))
    styles: dict[str, tuple] = {}
    rows = zip(_labels(result), result.phase, result.data, result.weight_decay, strict=True)
    for label, phase, data, decay in rows:
        n = objectives.index((data, decay))
        if len(phases) == 1:
            styles[label] = _OBJECTIVES[n % 4], _STYLES[n % 4]
        else:
            styles[label] = DEPTH(phases.index(phase) / (len(phases) - 1)), _STYLES[n % 4]
    return styles


_NAMES = {"sam": "SAM", "asam": "ASAM", "gaussian": "Gaussian"}


@figure(width=2.4, height=2.0)
def _(result: Sharpness, ax: Axes) -> Axes:
    """A point for each measure with its interval; faint points are mini-batches."""
    labels = []
    for x, (measure, rho, steps, mean, low, high, batches) in enumerate(result.means()):
        if batches:
            rows = (result.measure == measure) & (result.rho == rho) & (result.steps == steps)
            values = result.sharpness[rows]
            ax.plot(np.full(len(values), x), values, ".", color=FAINT, markersize=2)
        error = [[mean - low], [high - mean]] if np.isfinite(low) else None
        ax.errorbar([x], [mean], yerr=error, fmt="o", color=INK, markersize=4, capsize=2)
        labels.append(f"{_NAMES[measure]}\n$\\rho$ = {rho:g}")
    ax.axhline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(labels)), labels=labels)
    ax.set(xlim=(-0.6, len(labels) - 0.4), ylabel=Sharpness.infos()["sharpness"].heading)
    return ax


@figure(width=3.0, height=2.1, share=False)
def _(result: SpectralDensity, ax: Axes) -> Axes:
    """A stem for each node of each run: the fraction of eigenvalues that it represents."""
    weight = np.maximum(result.weight / result.runs, 1e-16)
    ax.vlines(result.node, 1e-16, weight, color=KIND_COLORS["conv"], linewidth=0.8, alpha=0.7)
    ax.plot(result.node, weight, "o", color=KIND_COLORS["conv"], markersize=2)
    ax.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set(yscale="log", ylim=(max(1e-12, 0.3 / result.parameters / result.runs), 1.5))
    infos = SpectralDensity.infos()
    ax.set(xlabel=infos["node"].label, ylabel=infos["weight"].label)
    return ax
