"""Figure of `Adversarial`: accuracy against the strength of each attack, or its frequency."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, tip
from visprism.results.perturbations import WORST_CASE, Adversarial

# Colors of Okabe and Ito, and a marker each for prints in gray.
_STYLES = {
    "random": ("#56B4E9", "s"),
    "fgsm": ("#E69F00", "^"),
    "pgd": ("#D55E00", "o"),
    "apgd": ("#0072B2", "v"),
    "apgd-t": ("#CC79A7", "P"),
    WORST_CASE: ("#000000", "D"),
}
_NAMES = {
    "random": "random",
    "fgsm": "FGSM",
    "pgd": "PGD",
    "apgd": "APGD",
    "apgd-t": "targeted APGD",
    "linf": "L∞",
    "l2": "L2",
}
_LOSSES = {"margin": " (margin)", "dlr": " (DLR)"}  # the cross-entropy is not named


@figure(width=2.7, height=2.2)
def _(result: Adversarial, ax: Axes) -> Axes:
    """Robust accuracy with its 95% interval against the size of the perturbation.

    The dashed line is the clean accuracy. Attacks within frequency bands are drawn against
    frequency, where there are no others.
    """
    banded = np.isfinite(result.frequency)
    rows = result.select(banded if banded.all() else ~banded)
    place = rows.frequency if banded.all() else rows.epsilon
    ax.axhline(rows.clean_accuracy, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    for attack, loss, norm in dict.fromkeys(
        zip(rows.attack.tolist(), rows.loss.tolist(), rows.norm.tolist(), strict=True)
    ):
        at = np.flatnonzero((rows.attack == attack) & (rows.loss == loss) & (rows.norm == norm))
        at = at[np.argsort(place[at], kind="stable")]
        color, marker = _STYLES.get(attack, (FAINT, "X"))
        name = _NAMES.get(attack, attack) + _LOSSES.get(loss, "")
        ax.errorbar(
            place[at],
            rows.accuracy[at],
            yerr=[(rows.accuracy - rows.low)[at], (rows.high - rows.accuracy)[at]],
            color=color,
            marker=marker,
            markersize=3.6,
            linewidth=1.0,
            elinewidth=0.8,
            linestyle="-" if norm == "linf" else "--",
            markerfacecolor="white" if loss in _LOSSES else color,
            label=f"{name}, {_NAMES.get(norm, norm)}",
            gid=tip(f"{name} · {norm}"),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    largest = (rows.norm == "linf").all() and not banded.all()
    if largest:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{255 * value:.3g}"))
        ax.set_xticks(np.unique(place))
    ax.set(ylim=(0, 1.02), ylabel=rows.infos()["accuracy"].heading)
    ax.set_xlabel(
        rows.infos()["frequency"].heading
        if banded.all()
        else ("L∞ norm of the perturbation (1/255)" if largest else "Norm of the perturbation")
    )
    ax.legend(fontsize=6, handlelength=1.8)
    return ax
