"""Figure of `Adversarial`: accuracy against the strength of each attack, or its frequency."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, tip
from visprism.results.perturbations import Adversarial

# Of Okabe and Ito; a marker each, so that a print in grey can be read too.
_LOOKS = {"random": ("#56B4E9", "s"), "fgsm": ("#E69F00", "^"), "pgd": ("#D55E00", "o")}
_NAMES = {"random": "random", "fgsm": "FGSM", "pgd": "PGD", "linf": "L∞", "l2": "L2"}


@figure(width=2.7, height=2.2)
def _(result: Adversarial, ax: Axes) -> Axes:
    """Accuracy under attacks with its 95 % interval; dashed, the accuracy without.

    Attacks in bands stand at their frequency, where there are no others.
    """
    banded = np.isfinite(result.frequency)
    rows = result.select(banded if banded.all() else ~banded)
    place = rows.frequency if banded.all() else rows.epsilon
    ax.axhline(rows.clean_accuracy, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    for attack, norm in dict.fromkeys(
        zip(rows.attack.tolist(), rows.norm.tolist(), strict=True)
    ):
        own = np.flatnonzero((rows.attack == attack) & (rows.norm == norm))
        own = own[np.argsort(place[own], kind="stable")]
        colour, marker = _LOOKS.get(attack, (FAINT, "X"))
        ax.errorbar(
            place[own],
            rows.accuracy[own],
            yerr=[(rows.accuracy - rows.low)[own], (rows.high - rows.accuracy)[own]],
            color=colour,
            marker=marker,
            markersize=3.6,
            linewidth=1.0,
            elinewidth=0.8,
            linestyle="-" if norm == "linf" else "--",
            label=f"{_NAMES.get(attack, attack)}, {_NAMES.get(norm, norm)}",
            gid=tip(f"{attack} · {norm}"),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    largest = (rows.norm == "linf").all() and not banded.all()
    if largest:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{255 * value:.3g}"))
        ax.set_xticks(np.unique(place))
    ax.set(ylim=(0, 1.02), ylabel="Accuracy")
    ax.set_xlabel(
        "Frequency of the attack (π rad/pixel)"
        if banded.all()
        else ("Largest change ε (of 255)" if largest else "Norm of the change ε")
    )
    ax.legend(fontsize=6, handlelength=1.8)
    return ax
