"""Token similarity: the mean cosine between the tokens of an image, by block."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism import kit

# The last two for blocks that have tokens off the grid.
SERIES = ("grid", "grid, mean removed", "all tokens", "all tokens, mean removed")


@kit.result("token-similarity", "Similarity of tokens")
class TokenCosines(kit.SeriesPerBlock):
    """Mean cosine between tokens of an image; a row for each block and choice of tokens.

    Each line is a choice of tokens: the mean cosine between two tokens of an image. A line
    that rises to 1 is over-smoothing. If only the line without removal of the mean is high,
    the tokens share one direction and differ in the others.
    """

    series_name = "tokens"
    value_name = "cosine"

    tokens: kit.Texts = kit.column(
        "Tokens",
        "",
        "'grid', or 'all tokens' with class token and registers; 'mean removed' where the mean "
        "token of the image was subtracted",
    )
    cosine: kit.Estimated = kit.estimate(
        "Cosine similarity of tokens",
        meaning="mean over pairs of an image, then over images",
        asks="How similar are the tokens of an image in the last block?",
    )

    def answered(self, name: str) -> np.ndarray:
        """Grid tokens of the last block."""
        last = np.flatnonzero(self.tokens == SERIES[0])[-1:]
        return last[np.isfinite(self.cosine[last])]


@kit.analysis
class TokenSimilarity(kit.FeatureAnalysis):
    """Cosine similarity between the tokens of an image, by block (over-smoothing)."""

    name = "token-similarity"
    source = "Gong et al. (2021), eq. 4; Wang et al. (2022)"
    sees = "tokens"
    passes = 1.6
    gives = TokenCosines

    def extract(self, x: kit.Tokens) -> dict[str, Float[Tensor, "b 2"]]:
        """Sum of cosines over pairs, and number of pairs, of each choice in `SERIES`.

        With n unit vectors u, the sum over their n (n - 1) pairs is |sum u|^2 - n: one read of
        the tokens. A token that is 0, or within 1e-6 of its norm of the removed mean, has none.
        """
        tokens, sums = kit.in_float64(x.every), []
        for choice in [tokens[:, x.off_grid.shape[1] :], tokens] if x.roles else [tokens]:
            rest = choice - choice.mean(dim=1, keepdim=True)
            rest *= rest.norm(dim=2, keepdim=True) > 1e-6 * choice.norm(dim=2, keepdim=True)
            for rows in (choice, rest):
                units = functional.normalize(rows, dim=2, eps=torch.finfo(rows.dtype).tiny)
                n = units.any(2).sum(1)
                sums.append(torch.stack([units.sum(1).square().sum(1) - n, n * (n - 1)], dim=1))
        return dict(zip(SERIES, sums, strict=False))

    def results(self, seen: kit.PassResult) -> tuple[TokenCosines]:
        """The similarity of every block; NaN for an image without a pair of tokens."""
        return (seen.series(TokenCosines, {name: name for name in SERIES}, _cosine),)


def _cosine(sums: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
    """Mean over pairs; NaN for an image without one."""
    total, pairs = sums.T
    return np.where(pairs > 0, total / np.maximum(pairs, 1), np.nan)
