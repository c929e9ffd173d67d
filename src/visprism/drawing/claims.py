"""Figures of the study of claims: effects with intervals over trained seeds."""

import numpy as np
from matplotlib.axes import Axes

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, tip
from visprism.results.claims import ClaimEffects

_COLORS = {"supported": "#2a7f62", "contradicted": "#b8412c", "undecided": "#6b6b6b"}
_MARKERS = {"supported": "o", "contradicted": "X", "undecided": "D"}


_UNITS = {"%": "percentage points", "ratio": "ratio minus 1, in %", "": "difference"}


@figure(width=6.4, height=2.8, across=1, share=False)
def _(result: ClaimEffects, ax: Axes) -> Axes:
    """Each effect with its 95% interval over seeds, a row for each hypothesis.

    Hypotheses of one protocol stand below its name.
    """
    ax.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    labels: dict[int, str] = {}  # by the height of the row
    protocol = ""
    for row in range(len(result)):
        if result.protocol[row] != protocol:
            protocol = str(result.protocol[row])
            labels[len(labels)] = protocol
        y, verdict = len(labels), str(result.verdict[row])
        scale = 100 if result.unit[row] in ("%", "ratio") else 1
        effect, low, high = (
            scale * float(v[row]) for v in (result.effect, result.low, result.high)
        )
        if np.isfinite([low, high]).all():
            ax.plot([low, high], [y, y], color=_COLORS[verdict], linewidth=1.4, zorder=2)
        ax.plot(
            effect,
            y,
            color=_COLORS[verdict],
            marker=_MARKERS[verdict],
            markersize=4.5,
            zorder=3,
            gid=tip(f"{result.hypothesis_text(row)} · {result.effect_text(row)} · {verdict}"),
        )
        labels[y] = f"{_short(str(result.quantity[row]))}: {result.hypothesis_text(row)}"
    ax.set_yticks(list(labels), list(labels.values()))
    protocols = set(result.protocol.tolist())
    for label, tick in zip(ax.get_yticklabels(), ax.yaxis.get_major_ticks(), strict=True):
        if label.get_text() in protocols:
            label.set_fontweight("bold")
            tick.tick1line.set_visible(False)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    unit = str(result.unit[0]) if len(result) else ""
    ax.set_xlabel(f"Effect ({_UNITS.get(unit, unit)})")
    return ax


def claim_rows(result: ClaimEffects) -> int:
    """Number of rows in the figure: hypotheses, and the names of protocols."""
    protocols = result.protocol.tolist()
    changes = zip(protocols, ["", *protocols], strict=False)
    return len(result) + sum(name != before for name, before in changes)


def _short(quantity: str) -> str:
    """The quantity without its objective and phase, which the protocol names."""
    return quantity.partition(",")[0]
