"""Effects: what an experiment on the claims found, row by row, and their picture."""

from collections.abc import Iterator
from math import exp, isclose, isfinite

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

import visprism as vp

_GRAY = "#6b6b6b"
PRIMARY, EQUAL_FIT, SECONDARY = "primary", "equal training NLL", "secondary"
RATIO, POINTS = "ratio", "points"
AFTER_ADJUSTMENT = " after adjustment"  # "can't tell", but the unadjusted interval excludes 0


def _resolved(value: float, low: float, high: float) -> str:
    """The format with as many digits, 3 to 7, as the ends need to differ from the value."""
    forms = [f"+.{digits}g" for digits in range(3, 8)]
    ends = [
        end for end in (low, high) if isfinite(end) and not isclose(end, value, rel_tol=1e-6)
    ]
    apart = (f for f in forms if all(f"{end:{f}}" != f"{value:{f}}" for end in ends))
    return next(apart, forms[0])


@vp.result_type("claim-effects")
class ClaimEffects(vp.Result):
    """The effect of each hypothesis of the claims; one row for each comparison.

    Effects are means over seeds of differences paired by seed, with Student's interval. Primary
    hypotheses have the confidence of Holm's procedure. Effects with the unit "ratio" are
    differences of logarithms, numbers as changes in percent.
    """

    row: vp.Texts = vp.column("Row", "", "C1 to C16, with a letter where a claim has several")
    words: vp.Texts = vp.column("Claim", "", "what it expects, in a few words")
    comparison: vp.Texts = vp.column("Comparison", "", f"{PRIMARY}, {EQUAL_FIT} or {SECONDARY}")
    hypothesis: vp.Texts = vp.column("Hypothesis", "", "networks that are compared, or 0")
    quantity: vp.Texts = vp.column("Quantity", "", "what is compared, and when")
    sign: np.ndarray = vp.column(
        "Sign", "", "1 if the claim expects a positive effect, else -1"
    )
    unit: vp.Texts = vp.column("Unit", "", "ratio, points (of a fraction), nats or none")
    effect: np.ndarray = vp.column("Effect", "", "mean of the paired differences over seeds")
    low: np.ndarray = vp.column("Low", "", "lower end of the interval over seeds")
    high: np.ndarray = vp.column("High", "", "upper end of the interval over seeds")
    confidence: np.ndarray = vp.column("Confidence", "", "of the interval")
    plain_low: np.ndarray = vp.column("Low, 95%", "", "lower end without adjustment")
    plain_high: np.ndarray = vp.column("High, 95%", "", "upper end without adjustment")
    seeds: np.ndarray = vp.column("Seeds", "", "trained seeds of each network")
    seeds_of_claim: np.ndarray = vp.column(
        "Seeds of claim", "", "seeds whose effect is on the side of the claim"
    )
    margin: np.ndarray = vp.column(
        "Margin", "", "smallest effect that matters; 0: none declared"
    )
    verdict: vp.Texts = vp.column("Verdict", "", "empty for secondary hypotheses")
    seeds_needed: np.ndarray = vp.column(
        "Seeds needed",
        "",
        "power of 80% for an effect of the margin; 0: decided, -1: over 1,000",
    )
    seeds_needed_observed: np.ndarray = vp.column(
        "Seeds needed, observed",
        "",
        "power of 80% for an effect equal to the observed one; 0: decided, -1: over 1,000",
    )
    note: vp.Texts = vp.column("Note", "", "such as a different verdict at equal training NLL")
    networks: vp.Texts = vp.column("Networks", "", "test accuracy and training NLL of each")
    scale: str = vp.scalar("Scale", "", "of networks and training", default="")

    def effect_text(self, row: int) -> str:
        """The effect with its interval: ``-12% [-15, -9]`` or ``+0.31 nats [0.2, 0.4]``."""
        effect, low, high = (float(v[row]) for v in (self.effect, self.low, self.high))
        return self.text_of(effect, low, high, str(self.unit[row]))

    def plain_text(self, row: int) -> str:
        """The unadjusted 95% interval: ``[-15, -9]``; empty without one."""
        effect, low, high = (
            float(v[row]) for v in (self.effect, self.plain_low, self.plain_high)
        )
        text = self.text_of(effect, low, high, str(self.unit[row]))
        return text[text.index("[") :] if "[" in text else ""

    @classmethod
    def text_of(cls, effect: float, low: float, high: float, unit: str) -> str:
        """An effect with its interval; empty without an effect."""
        if not isfinite(effect):
            return ""
        effect, low, high = (cls._in_unit(value, unit) for value in (effect, low, high))
        form = _resolved(effect, low, high)
        text = f"{effect:{form}}" + {RATIO: "%", "": ""}.get(unit, f" {unit}")
        if isfinite(low) and isfinite(high):
            text += f" [{low:{form}}, {high:{form}}]"
        return text.replace("-", "\N{MINUS SIGN}")

    @classmethod
    def margin_text(cls, margin: float, unit: str) -> str:
        """A margin with its unit: ``5 points`` or ``factor 1.25``."""
        if unit == RATIO:
            return f"factor {exp(margin):.3g}"
        number = f"{cls._in_unit(margin, unit):.3g}"
        return f"{number} {unit.removesuffix('s') if number == '1' else unit}".rstrip()

    def narrow(self, row: int) -> tuple[float, float]:
        """The 90% interval, which lies within the margin where there is no effect beyond it."""
        from scipy.special import stdtrit

        effect, low, high = (float(v[row]) for v in (self.effect, self.low, self.high))
        freedom, level = int(self.seeds[row]) - 1, (1 + float(self.confidence[row])) / 2
        half = (high - low) / 2 * stdtrit(freedom, 0.95) / stdtrit(freedom, level)
        return effect - half, effect + half

    def narrow_text(self, row: int) -> str:
        """The 90% interval in the unit of the effect: ``-0.066 to +0.15 points``."""
        unit = str(self.unit[row])
        low, high = (f"{self._in_unit(value, unit):+.3g}" for value in self.narrow(row))
        percent, name = "%" * (unit == RATIO), "" if unit == RATIO else f" {unit}".rstrip()
        return f"{low}{percent} to {high}{percent}{name}".replace("-", "\N{MINUS SIGN}")

    @staticmethod
    def _in_unit(value: float, unit: str) -> float:
        if unit == RATIO:
            return 100 * (exp(value) - 1) if isfinite(value) else value
        return 100 * value if unit == POINTS else value

    def sentences(self) -> Iterator[str | vp.Finding]:
        """Each primary hypothesis with its effect and verdict."""
        for i in np.flatnonzero(self.comparison == PRIMARY).tolist():
            yield (
                f"{self.row[i]}, {self.quantity[i]}, {self.hypothesis[i]}: {self.verdict[i]}"
                + (f", {self.effect_text(i)} over {self.seeds[i]} seeds" * bool(self.seeds[i]))
            )


_COLORS = {
    "reproduced at this scale": "#2a7f62",
    "opposite at this scale": "#b8412c",
    "no effect beyond the margin": "#0072B2",
    "can't tell": _GRAY,
    "preliminary": "#a9a9a9",
}
_HOLLOW = "at equal training fit"
_LINEAR = 2.0  # margins, beyond which the axis is logarithmic


@vp.figure(width=7.2, height=4.6, across=1, share=False)
def _(result: ClaimEffects, ax: Axes) -> Axes:
    """Primary effects toward the claim, in units of their margin.

    Thin lines are the intervals that decide whether there is an effect, thick ones the 90%
    intervals, which lie within the margin where there is none beyond it. Effects at equal
    training NLL are hollow. Rows without enough seeds have no mark.
    """
    first = np.flatnonzero(result.comparison == PRIMARY)
    rows = result.row[first].tolist()
    ax.axvspan(-1, 1, color="#EDEDED", linewidth=0, zorder=0)
    ax.axvline(0, color=_GRAY, linewidth=0.8, zorder=1)
    for i in np.flatnonzero(np.isin(result.comparison, (PRIMARY, EQUAL_FIT))).tolist():
        equal = result.comparison[i] == EQUAL_FIT
        verdict = str(result.verdict[i]).removesuffix(AFTER_ADJUSTMENT)
        y = rows.index(result.row[i]) + 0.28 * equal
        if verdict not in _COLORS:
            if not equal:
                ax.text(1.1, y, verdict, color=_GRAY, va="center", fontsize=6)
            continue
        scale = result.sign[i] / result.margin[i]
        effect, low, high = (scale * v[i] for v in (result.effect, result.low, result.high))
        color = _COLORS[verdict]
        ax.plot([low, high], [y, y], color=color, linewidth=0.7, zorder=2)
        thick = 1.2 if equal else 2.2
        ax.plot([scale * v for v in result.narrow(i)], [y, y], color=color, linewidth=thick)
        fill = "white" if equal else color
        ax.plot(effect, y, "o", color=color, markerfacecolor=fill, markersize=4, zorder=3)
    found = {str(v).removesuffix(AFTER_ADJUSTMENT) for v in result.verdict}
    shown = {verdict: color for verdict, color in _COLORS.items() if verdict in found}
    marks = [Line2D([], [], color=c, marker="o", markersize=4) for c in shown.values()]
    hollow = bool(np.isin(result.verdict[result.comparison == EQUAL_FIT], list(_COLORS)).any())
    if hollow:
        marks.append(
            Line2D([], [], color=_GRAY, marker="o", markersize=4, markerfacecolor="white")
        )
    names = [*shown, *[_HOLLOW] * hollow]
    ax.legend(marks, names, loc="lower right", bbox_to_anchor=(1, 1), ncols=max(1, len(names)))
    labels = zip(rows, result.words[first].tolist(), strict=True)
    ax.set_yticks(range(len(rows)), [f"{words}  {row}" for row, words in labels])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xscale("symlog", linthresh=_LINEAR)
    ends = max(4.0, *np.abs(ax.get_xlim()))
    ax.set_xlim(-ends, ends)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Effect / margin (gray: within one margin; right: as the paper claims)")
    return ax
