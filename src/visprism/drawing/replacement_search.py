"""Figures of `ReplacementSearch`: validation accuracy by number of MSA blocks."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, STRIP, color_of, tip
from visprism.results.harmonize import ReplacementSearch


@figure(width=3.2, height=2.6)
def _(result: ReplacementSearch, ax: Axes) -> Axes:
    """Means with standard errors, and the runs of all seeds as small points.

    Selected candidates are filled and joined by a line; the others are hollow, with a dotted
    line. Diamonds are the CNN and the selected network with new seeds.

    Source: Park and Kim (2022), How do vision transformers work?, fig. 11.
    """
    msa = color_of("attention")
    selected: list[tuple[float, float]] = []
    for candidate in result.candidates():
        x, mean, error = candidate.summary()
        is_selected = bool(candidate.selected[0])
        name = str(candidate.added[0])
        color = msa if name else color_of("conv")
        if selected:
            line = np.array([selected[-1], (x, mean)])
            style = "-" if is_selected else (0, (1, 1.5))
            color_of_line = msa if is_selected else FAINT
            ax.plot(*line.T, color=color_of_line, linewidth=0.9, linestyle=style)
        ax.plot([x] * len(candidate), candidate.accuracy, ".", color=STRIP, markersize=2.5)
        ax.errorbar(
            x,
            mean,
            yerr=error,
            marker="o",
            markersize=4,
            markerfacecolor=color if is_selected else "white",
            color=color,
            elinewidth=0.8,
            capsize=1.5,
            gid=tip(f"{name or 'the CNN'} · {mean:.2%} ± {error:.2%}"),
        )
        if name:
            ax.annotate(
                name,
                (x, mean),
                xytext=(5, 3 if is_selected else -3),
                textcoords="offset points",
                va="bottom" if is_selected else "top",
                fontsize="x-small",
                color=color if is_selected else FAINT,
            )
        if is_selected:
            selected.append((x, mean))
    for network in result.confirmed():
        x, mean, error = network.summary()
        ax.errorbar(
            x + 0.05,  # beside the runs of the search
            mean,
            yerr=error,
            marker="D",
            markersize=3.5,
            markerfacecolor="white",
            color=msa if network.added[0] else color_of("conv"),
            elinewidth=0.8,
            capsize=1.5,
            gid=tip(f"{network.added[0] or 'the CNN'}, new seeds · {mean:.2%} ± {error:.2%}"),
        )
    ax.margins(x=0.22)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    infos = ReplacementSearch.infos()
    ax.set(xlabel=infos["msas"].heading, ylabel=infos["accuracy"].heading)
    return ax
