"""Token similarity: the mean cosine between the tokens of an image, by block.

With unit vectors u of n tokens, the mean over their n (n - 1) pairs is

    (|sum u|^2 - n) / (n (n - 1)),

which takes one read of the tokens instead of all pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.core.devices import in_float64
from visprism.estimates import questions
from visprism.estimates.estimated import Estimated, mean
from visprism.passes.blocks import block_columns
from visprism.passes.features import Arrays, Extracts, Seen
from visprism.passes.tokens import Tokens
from visprism.table.result import Result, Texts, column, estimate, result_type
from visprism.table.shapes import SeriesPerBlock

# The last two for blocks that have tokens off the grid.
SERIES = ("grid", "grid, mean removed", "all tokens", "all tokens, mean removed")
# A token that differs from the mean by less than this part of its norm is equal to it.
_ROUNDING = 1e-6


@result_type("token-similarity")
class TokenCosines(SeriesPerBlock):
    """Mean cosine between tokens of an image; a row for each block and choice of tokens."""

    series_name: ClassVar[str] = "tokens"
    value_name: ClassVar[str] = "cosine"

    tokens: Texts = column(
        "Tokens",
        "",
        "'grid', or 'all tokens' with class token and registers; 'mean removed' where the mean "
        "token of the image was subtracted",
    )
    cosine: Estimated = estimate(
        "Cosine similarity of tokens",
        meaning="mean over pairs of an image, then over images",
        question=questions.TOKEN_SIMILARITY,
    )

    def answered(self, name: str) -> np.ndarray:
        """Grid tokens of the last block."""
        rows = self.series().get(SERIES[0], np.zeros(0, dtype=int))[-1:]
        return rows[np.isfinite(self.cosine[rows])]


@ANALYSES.register
@dataclass(frozen=True)
class TokenSimilarity(FeatureAnalysis):
    """Cosine similarity between the tokens of an image, by block (over-smoothing)."""

    name = "token-similarity"
    source = "Gong et al. (2021), eq. 4; Wang et al. (2022)"
    sees = "tokens"
    passes = 1.6
    sections = (
        Section(
            TokenCosines,
            "Similarity of tokens",
            "Each line is a choice of tokens: the mean cosine between two tokens of an image. "
            "A line that rises to 1 is over-smoothing. If only the line without removal of the "
            "mean is high, the tokens share one direction and differ in the others.",
        ),
    )

    def extract(self, x: Tokens) -> Float[Tensor, "b 2 s"]:
        """Mean cosine of the first s choices of `SERIES`, and whether two tokens are not 0.

        Costs two reads of the feature map, of which one copy in float64 is made.
        """
        tokens = in_float64(x.every)
        grid = tokens[:, x.off_grid.shape[1] :]
        choices = [grid, tokens] if x.roles else [grid]
        return torch.stack(
            [_mean_cosine(c) for raw in choices for c in (raw, _centered(raw))], 2
        )

    def by_image(self, extracts: Extracts) -> Arrays:
        """The cosines; NaN for an image without a pair of tokens."""
        pairs = super().by_image(extracts).items()
        return {block: np.where(x[:, 1] > 0, x[:, 0], np.nan) for block, x in pairs}

    def results(self, seen: Seen) -> Sequence[Result]:
        """The similarity of every block."""
        pairs = [
            (block, name, seen.by_image[block][:, i])
            for i, name in enumerate(SERIES)
            for block in seen.blocks
            if i < seen.by_image[block].shape[1]
        ]
        blocks, names, cosines = zip(*pairs, strict=True)
        return (
            TokenCosines(
                **block_columns(blocks),
                tokens=np.array(names),
                cosine=mean(np.stack(cosines, axis=1)),
            ),
        )


def _centered(tokens: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
    """Tokens less their mean; exactly 0 where they differ from it by rounding only."""
    rest = tokens - tokens.mean(dim=1, keepdim=True)
    differs = rest.norm(dim=2, keepdim=True) > _ROUNDING * tokens.norm(dim=2, keepdim=True)
    return rest * differs


def _mean_cosine(tokens: Float[Tensor, "b n c"]) -> Float[Tensor, "b 2"]:
    """Mean cosine over pairs of tokens that are not 0, and 1 where there is such a pair."""
    norms = tokens.norm(dim=2, keepdim=True)
    units = tokens / norms.clamp(min=torch.finfo(tokens.dtype).tiny)
    n = (norms > 0).sum((1, 2)).to(tokens)
    pairs = n * (n - 1)
    cosine = (units.sum(1).square().sum(1) - n) / pairs.clamp(min=1)
    return torch.stack([cosine, (pairs > 0).to(cosine)], dim=1)
