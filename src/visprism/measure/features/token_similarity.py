"""Token similarity: the mean cosine between the tokens of an image, from their mean direction.

With unit vectors u of n tokens, the mean over their n (n - 1) pairs is

    (|sum u|^2 - n) / (n (n - 1)),

which takes one read of the tokens instead of all pairs.

Sources: Gong et al. (2021), Vision transformers with patch diversification, eq. 4 (cosine over
pairs of tokens); Wang et al. (2022), Anti-oversmoothing in deep vision transformers (the share
of the mean token).
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Block
from visprism.core.statistics import standard_error
from visprism.measure.features.per_block import block_columns, image_sums
from visprism.measure.features.probe import Probe
from visprism.measure.features.tokens import Tokens
from visprism.results.token_similarity import LAST_BLOCK, SERIES, TokenSimilarity

# A token that differs from the mean by less than this part of its norm is equal to it: features
# come in float32.
_ROUNDING = 1e-6


class TokenSimilarityProbe(Probe):
    """Gathers the `TokenSimilarity` of all blocks.

    The state is three numbers for each block and choice of tokens. Costs two reads of each
    feature map, of which one copy in float64 is made.
    """

    sees = "tokens"

    def extract(self, x: Tokens) -> Float[Tensor, "b 2 s"]:
        """Mean cosine of each choice of tokens, and whether two tokens have a direction.

        The choices are the first s of `SERIES`: two for blocks without tokens off the grid.
        """
        tokens = x.every.double()
        grid = tokens[:, x.off_grid.shape[1] :]
        choices = [grid, tokens] if x.roles else [grid]
        return torch.stack(
            [_mean_cosine(c) for raw in choices for c in (raw, _centered(raw))], 2
        )

    def update(self, batch: Mapping[Block, Float[Tensor, "b 2 _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        last = np.zeros(0)
        for block, extract in batch.items():
            cosine, defined = extract.cpu().double().numpy().transpose(1, 2, 0)
            values = np.where(defined > 0, cosine, np.nan)
            for name, by_image in zip(SERIES, values, strict=False):
                self.add({(block, name): image_sums(by_image)})
            last = values[0]
        self.record(LAST_BLOCK, last)

    def result(self) -> TokenSimilarity:
        """The similarity of every block; see `Probe.result`."""
        keys = sorted(self.gathered(), key=lambda key: SERIES.index(key[1]))  # stable
        count, total, squares = np.stack([self.sums[key] for key in keys], axis=1)
        with np.errstate(invalid="ignore"):
            mean = total / count
        return TokenSimilarity(
            **block_columns([block for block, _ in keys]),
            tokens=np.array([name for _, name in keys]),
            cosine=mean,
            cosine_error=standard_error(total, squares, count),
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
    mean = (units.sum(1).square().sum(1) - n) / pairs.clamp(min=1)
    return torch.stack([mean, (pairs > 0).to(mean)], dim=1)
