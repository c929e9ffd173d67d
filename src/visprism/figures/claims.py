"""Figures of the study of claims: effects with intervals over trained seeds."""

import numpy as np
from matplotlib.axes import Axes

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, tip
from visprism.results.claims import ClaimEffects

_COLORS = {"supported": "#2a7f62", "contradicted": "#b8412c", "undecided": "#6b6b6b"}
_MARKERS = {"supported": "o", "contradicted": "X", "undecided": "D"}


@figure(width=5.6, height=2.8, across=1, share=False)
def _(result: ClaimEffects, ax: Axes) -> Axes:
    """Each effect with its 95 % interval over seeds, a row for each hypothesis."""
    ax.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    labels = []
    for row in range(len(result)):
        verdict = str(result.verdict[row])
        scale = 100 if result.unit[row] in ("%", "ratio") else 1
        effect, low, high = (
            scale * float(v[row]) for v in (result.effect, result.low, result.high)
        )
        if np.isfinite([low, high]).all():
            ax.plot([low, high], [row, row], color=_COLORS[verdict], linewidth=1.4, zorder=2)
        ax.plot(
            effect,
            row,
            color=_COLORS[verdict],
            marker=_MARKERS[verdict],
            markersize=4.5,
            zorder=3,
            gid=tip(f"{result.hypothesis_text(row)} · {result.effect_text(row)} · {verdict}"),
        )
        protocol = f"\n{result.protocol[row]}" if result.protocol[row] else ""
        labels.append(f"{result.hypothesis_text(row)}{protocol}")
    ax.set_yticks(range(len(result)), labels)
    ax.set_ylim(len(result) - 0.5, -0.5)
    units = {"%": "percentage points", "ratio": "ratio minus 1 (%)", "": "difference"}
    unit = str(result.unit[0]) if len(result) else ""
    quantity = " / ".join(dict.fromkeys(_short(q) for q in result.quantity.tolist()))
    ax.set_xlabel(f"{quantity}: {units.get(unit, unit)}")
    return ax


def _short(quantity: str) -> str:
    """The quantity without its objective and phase, which the protocol names."""
    return quantity.partition(",")[0]
