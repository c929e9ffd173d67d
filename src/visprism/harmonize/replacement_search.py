"""Results of harmonizing a CNN: the search for the blocks that self-attention replaces."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, STRIP, color_of, tip
from visprism.estimates.findings import Finding
from visprism.table.result import Result, Texts, column, result_type, scalar

SEARCH, CONFIRMATION = "search", "confirmation"


def t_tail(t: float, degrees: int) -> float:
    """Probability that Student's t with these degrees of freedom exceeds a value."""
    from scipy.stats import t as student

    return float(student.sf(t, degrees))


def paired_gain(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Mean of paired differences and its standard error, s / sqrt(n)."""
    gains = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def gain_interval(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Mean of n paired differences d, and its 95% t interval, mean(d) ± t s / sqrt(n)."""
    from scipy.stats import t as student

    gain, error = paired_gain(before, after)
    half = float(student.ppf(0.975, len(before) - 1)) * error
    return gain, gain - half, gain + half


@result_type("replacement-search")
class ReplacementSearch(Result):
    """Accuracies of the candidates of a search; one row per candidate, seed and phase."""

    candidate: np.ndarray = column("Candidate", "", "number of the candidate; 0 is the CNN")
    msas: np.ndarray = column("MSA blocks", "", "number of MSA blocks")
    added: Texts = column(
        "Added block", "", "name of the block that was replaced last; empty for the CNN"
    )
    placement: Texts = column(
        "Replaced blocks", "", "names of all replaced blocks, separated by commas"
    )
    seed: np.ndarray = column("Seed", "", "seed of the training run")
    accuracy: np.ndarray = column(
        "Validation accuracy", "", "fraction of validation images classified correctly"
    )
    selected: np.ndarray = column(
        "Selected", "", "whether the added block was selected, with all blocks before it"
    )
    phase: Texts = column(
        "Phase", "", "'search', or 'confirmation': seeds that selected nothing"
    )
    alpha: float = scalar(
        "Significance level", "", "level of the one-sided t-test by which blocks are selected"
    )

    @property
    def best(self) -> tuple[str, ...]:
        """Names of the replaced blocks of the selected network; empty for the CNN."""
        last = np.flatnonzero(self.selected & (self.phase == SEARCH))[-1]
        return tuple(filter(None, str(self.placement[last]).split(",")))

    def candidates(self) -> list["ReplacementSearch"]:
        """The rows of each candidate of the search, in the order of training."""
        return self._by_candidate(SEARCH)

    def confirmed(self) -> list["ReplacementSearch"]:
        """The rows of the CNN and of the selected network with new seeds; empty without."""
        return self._by_candidate(CONFIRMATION)

    def _by_candidate(self, phase: str) -> list["ReplacementSearch"]:
        rows = self.select(self.phase == phase)
        return [rows.select(rows.candidate == number) for number in np.unique(rows.candidate)]

    def summary(self) -> tuple[float, float, float]:
        """MSA blocks of one candidate, its mean accuracy, and the standard error over seeds."""
        error = self.accuracy.std(ddof=1) / np.sqrt(len(self))
        return float(self.msas[0]), float(self.accuracy.mean()), float(error)

    def confirmed_gain(self) -> tuple[float, float, float]:
        """Gain in accuracy of the selected network over the CNN, with its 95% t interval.

        Over the paired differences d of n seeds that selected nothing, mean(d) ± t s / sqrt(n)
        with t the 97.5% quantile of Student's distribution with n - 1 degrees of freedom. NaN
        where no block was selected.
        """
        networks = self.confirmed()
        if not networks:
            return (float("nan"),) * 3
        return gain_interval(*(network.accuracy for network in networks))

    def ranking(self) -> list[tuple[str, float, float, float]]:
        """Replaced blocks of each candidate, and its gain over the CNN, the largest first.

        With 95% t intervals over the seeds. The largest gain of several is optimistic.
        """
        cnn, *others = self.candidates()
        gains = [
            (str(one.placement[0]), *gain_interval(cnn.accuracy, one.accuracy))
            for one in others
        ]
        return sorted(gains, key=lambda row: -row[1])

    def sentences(self) -> Iterator[str | Finding]:
        """What was selected by which test, and the gain on seeds that selected nothing."""
        tried = self.candidates()
        number, seeds = len(tried) - 1, len(tried[0])
        test = f"one-sided paired t-test over {seeds} seeds, alpha = {self.alpha:.2g} per block"
        if not self.best:
            yield (
                f"no MSA block raises the validation accuracy significantly: 0 of {number} "
                f"candidates selected ({test})"
            )
            yield from self._ranked()
            return
        yield Finding(
            f"{len(self.best)} MSA blocks selected ({', '.join(self.best)}) in {number} "
            f"candidates ({test})"
        )
        gain, low, high = self.confirmed_gain()
        means = [network.accuracy.mean() for network in self.confirmed()]
        count = len(self.confirmed()[0])
        significant = "" if low > 0 or high < 0 else ", not significant"
        yield (
            f"with {count} new seeds, validation accuracy {means[0]:.1%} of the CNN and "
            f"{means[1]:.1%} of the selected network: a gain of {_points(gain, low, high)} "
            f"percentage points (95% t interval over seeds){significant}"
        )
        yield from self._ranked()

    def _ranked(self) -> Iterator[str]:
        ranked = [
            f"{blocks.replace(',', ' + ')} {_points(gain, low, high)}"
            for blocks, gain, low, high in self.ranking()
        ]
        if ranked:
            yield (
                f"gain over the CNN in percentage points (95% t intervals over "
                f"{len(self.candidates()[0])} seeds, not corrected for the choice among "
                f"{len(ranked)}): {'; '.join(ranked)}"
            )


def _points(gain: float, low: float, high: float) -> str:
    return f"{100 * gain:+.2g} [{100 * low:.2g}, {100 * high:.2g}]"


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
            x + 0.05,  # next to the runs of the search
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
