"""Figure of the study of claims: primary effects in units of their margin."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, tip
from visprism.results.claims import EQUAL_FIT, PRIMARY, ClaimEffects

_COLORS = {
    "reproduced at this scale": "#2a7f62",
    "opposite at this scale": "#b8412c",
    "no effect beyond the margin": "#0072B2",
    "can't tell": "#6b6b6b",
}
_LINEAR = 2.0  # margins, beyond which the axis is logarithmic


@figure(width=6.4, height=4.2, across=1, share=False)
def _(result: ClaimEffects, ax: Axes) -> Axes:
    """Primary effects with their intervals, toward the claim, in units of their margin.

    Effects at equal training NLL are hollow. Rows without enough seeds have no mark.
    """
    rows = result.row[result.comparison == PRIMARY].tolist()
    ax.axvspan(-1, 1, color="#EDEDED", linewidth=0, zorder=0)
    ax.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    for i in np.flatnonzero(np.isin(result.comparison, (PRIMARY, EQUAL_FIT))).tolist():
        equal, verdict = result.comparison[i] == EQUAL_FIT, str(result.verdict[i])
        y = rows.index(result.row[i]) + 0.28 * equal
        if verdict not in _COLORS:
            if not equal:
                ax.text(1.1, y, verdict, color=FAINT, va="center", fontsize=6)
            continue
        scale = result.sign[i] / result.margin[i]
        effect, low, high = (scale * v[i] for v in (result.effect, result.low, result.high))
        color = _COLORS[verdict]
        ax.plot([low, high], [y, y], color=color, linewidth=0.7 if equal else 1.4, zorder=2)
        label = f"{result.row[i]} · {result.effect_text(i)} · {verdict}"
        fill = "white" if equal else color
        ax.plot(
            effect, y, "o", color=color, markerfacecolor=fill, markersize=4, zorder=3,
            gid=tip(label),
        )  # fmt: skip
    marks = [Line2D([], [], color=c, marker="o", markersize=4) for c in _COLORS.values()]
    ax.legend(marks, list(_COLORS), loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xscale("symlog", linthresh=_LINEAR)
    ends = max(4.0, *np.abs(ax.get_xlim()))
    ax.set_xlim(-ends, ends)
    ax.set_xlabel("Effect in units of the margin (positive: as the paper claims)")
    return ax
