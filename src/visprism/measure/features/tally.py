"""Tallies: what the blocks of one kind have in common, with a test.

Whether attention is a low-pass filter is a question about many blocks. The tally counts on how
many of them a quantity falls, tests that count against chance, and gives the mean change.
"""

import numpy as np

from visprism.core.errors import InputError
from visprism.measure.features.fourier import HighFrequency
from visprism.measure.features.per_block import PerBlock
from visprism.measure.features.variance import Variances
from visprism.results.base import Result, column, result_type, scalar

QUANTITIES = {HighFrequency: "high-frequency log amplitude", Variances: "variance"}

# What blocks do that lower or raise a quantity: (of one block, of several).
_WORDS = {
    "high-frequency log amplitude": (
        ("is low-pass", "are low-pass"),
        ("is high-pass", "are high-pass"),
    ),
    "variance": (
        ("reduces the variance of the feature maps", "reduce the variance of the feature maps"),
        ("raises the variance of the feature maps", "raise the variance of the feature maps"),
    ),
}

_CHANCE = 0.05  # p from which a count is not told from that of a fair coin


@result_type("tally")
class Tally(Result):
    """The change across blocks, by kind; one row for each kind.

    Counted are the blocks that keep the grid of the block before and change the quantity.
    """

    kind: np.ndarray = column("Kind")
    blocks: np.ndarray = column("Blocks", "", "how many")
    falls: np.ndarray = column("Falls", "", "on how many of them the quantity falls")
    mean: np.ndarray = column("Mean", "", "mean change over blocks")
    low: np.ndarray = column(
        "Low", "", "95 % interval of the mean over blocks, by Student's t; NaN for one block"
    )
    high: np.ndarray = column("High")
    p: np.ndarray = column(
        "P", "", "two-sided sign test of as many falls against as many rises"
    )
    quantity: str = scalar(
        "Quantity",
        "",
        "'high-frequency log amplitude', or 'variance', which changes by a fraction",
    )

    def sentences(self) -> list[str]:
        """A verdict for each kind, with its numbers; or one, that there is nothing to count."""
        if not len(self):
            return [f"no block keeps its grid and changes the {self.quantity}"]
        return [self._sentence(row) for row in range(len(self))]

    def _sentence(self, row: int) -> str:
        kind, blocks, falls = self.kind[row], self.blocks[row], self.falls[row]
        falling = 2 * falls >= blocks
        agree = falls if falling else blocks - falls
        words = _WORDS[self.quantity][0 if falling else 1][0 if agree == 1 else 1]
        change = self._change(self.mean[row])
        if blocks == 1:
            return f"the only {kind} block counted {words} (change {change})"
        low, high = self._change(self.low[row]), self._change(self.high[row])
        p = "p < 0.001" if self.p[row] < 0.001 else f"p = {self.p[row]:.2g}"
        if self.p[row] >= _CHANCE:
            p += ", which may be chance"
        return (
            f"{agree} of {blocks} {kind} blocks {words} (mean change {change}, 95 % interval "
            f"{low} to {high}, sign test {p})"
        )

    def _change(self, value: float) -> str:
        scaled, unit = (100 * value, " %") if self.quantity == "variance" else (value, "")
        return f"{scaled:+.0f}{unit}" if abs(scaled) >= 10 else f"{scaled:+.2g}{unit}"


def tally(result: PerBlock) -> Tally:
    """The change across the blocks of each kind, in a `HighFrequency` or `Variances`.

    Left out are blocks whose change is unknown (the first, and one whose grid differs from that
    of the block before) or exactly 0 (as the sign test wants), and blocks that subsample.

    Raises:
        InputError: if the result is of another type.
    """
    if not isinstance(result, HighFrequency | Variances):
        raise InputError(
            f"a tally is made of HighFrequency or Variances, not of {type(result).__name__}; "
            "high_frequency(spectrum) makes a HighFrequency"
        )
    from scipy import stats  # takes a second to import; only tallies need it

    counted = np.isfinite(result.change) & (result.change != 0) & ~result.subsampling
    kinds = list(dict.fromkeys(result.kind[counted].tolist()))
    changes = [result.change[counted & (result.kind == kind)] for kind in kinds]
    falls = [int((change < 0).sum()) for change in changes]
    mean = np.array([change.mean() for change in changes])
    blocks = np.array([len(change) for change in changes], dtype=int)
    spread = np.array([c.std(ddof=1) if len(c) > 1 else np.nan for c in changes])
    margin = stats.t.ppf(0.975, blocks - 1) * spread / np.sqrt(blocks)
    tests = [stats.binomtest(k, len(c)) for k, c in zip(falls, changes, strict=True)]
    return Tally(
        kind=np.array(kinds, dtype=str),
        blocks=blocks,
        falls=np.array(falls, dtype=int),
        mean=mean,
        low=mean - margin,
        high=mean + margin,
        p=np.array([test.pvalue for test in tests]),
        quantity=QUANTITIES[type(result)],
        provenance=result.provenance,
    )
