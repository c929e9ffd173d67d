"""Curves over the steps of a training: a quantity that was measured at several of them."""

from collections.abc import Iterator
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism import kit
from visprism.drawing import style
from visprism.estimates.answers import Answer

_WIDEST = 38  # characters of an axis label
MOST = 6  # parts of a model with a name in the key


@kit.result("evolution")
class Evolution(kit.Result):
    """One quantity after several numbers of updates; one row for each, by part of the model."""

    step: np.ndarray = kit.column("Step", "", "number of updates of the training")
    part: kit.Texts = kit.column(
        "Part", "", "of the model, such as a kind of block; may be empty"
    )
    value: kit.Estimated = kit.estimate(
        "Value", "", "of the quantity, with its interval over images"
    )
    quantity: str = kit.scalar("Quantity", "", "that the values are of")
    unit: str = kit.scalar("Unit", "", "of the values; '%': fractions", default="")

    def parts(self) -> dict[str, "Evolution"]:
        """The rows of each part of the model, in the order of the steps."""
        names = dict.fromkeys(self.part.tolist())
        return {name: self.select(self.part == name) for name in names}

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Both ends, and the step from which less than half of the change is left.

        More than six parts, such as every block, have no sentences.
        """
        parts = self.parts()
        for name, rows in parts.items() if len(parts) <= MOST else ():
            value, low, high = np.asarray(rows.value), rows.value.low, rows.value.high
            first, last = (
                Answer("", "", float(value[i]), float(low[i]), float(high[i]), self.unit).number
                for i in (0, -1)
            )
            quantity = ", ".join(filter(None, (self.quantity, name)))
            text = f"{quantity}: {first} after step {rows.step[0]}"
            if len(rows) > 1:
                text += f", {last} after step {rows.step[-1]}"
            if np.isfinite(low).all():
                text += f", intervals over {self.images_text}"
            if low[0] > high[-1] or high[0] < low[-1]:  # the intervals are apart
                far = np.abs(value - value[-1]) > abs(value[0] - value[-1]) / 2
                settled = rows.step[np.flatnonzero(far)[-1] + 1]
                text += f"; from step {settled}, less than half of the change is left"
            yield text


SECTION = kit.Section(
    Evolution,
    "During training",
    "Each line is a quantity against the number of updates, with its 95% interval over the "
    "same images. Many blocks are drawn from dark (first) to bright (last). This is one "
    "training: another seed may differ as much as the steps do.",
)


@kit.figure(width=3.0, height=2.2)
def _(result: Evolution, ax: Axes) -> Axes:
    """A line for each part of the model, with its intervals as a band.

    Many parts, such as blocks, have no intervals and run from dark (first) to bright (last).
    """
    parts, few = result.parts(), list(style.KIND_COLORS.values())
    colors = few if len(parts) <= len(few) else style.DEPTH(np.linspace(0, 1, len(parts)))
    for (name, rows), color in zip(parts.items(), colors, strict=False):
        value = np.asarray(rows.value)
        ax.plot(
            rows.step, value, color=color, linewidth=1.2, label=name or None,
            marker="o" if len(rows) < 30 else None, markersize=2.5,
            gid=style.tip(
                f"{name or result.quantity} · {value[-1]:.4g} after step {rows.step[-1]}"
            ),
        )  # fmt: skip
        if len(parts) <= len(few) and np.isfinite(rows.value.low).any():
            ax.fill_between(
                rows.step, rows.value.low, rows.value.high, color=color, alpha=0.2, linewidth=0
            )
    if 1 < len(parts) <= MOST:
        style.legend(ax, fontsize="small")
    if result.unit == "%":
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    unit = f" ({result.unit})" if result.unit not in ("", "%") else ""
    ax.set(
        xlabel=result.infos()["step"].heading, ylabel=fill(f"{result.quantity}{unit}", _WIDEST)
    )
    return ax
