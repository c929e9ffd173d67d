"""Singular values of features: how many directions of its channels a block makes use of.

Rows of the feature matrix are either tokens, the channel vectors of all positions of all
images, or images, the means of those over positions. Their mean is taken off; the squared
singular values are then the variances along the principal directions.

Source: Roy and Vetterli (2007), The effective rank: a measure of effective dimensionality.
"""

from collections.abc import Mapping

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Block
from visprism.measure.features.per_block import PerBlock, described
from visprism.measure.features.probe import Probe
from visprism.results.base import column, result_type

LEVELS = ("tokens", "images")

# Times the number of channels and the mean square: variances below this are what rounding may
# leave of none. Ten times the bound that numpy.linalg.matrix_rank takes.
_FLOOR = 10 * np.finfo(float).eps


@result_type("singular-values")
class SingularValues(PerBlock):
    """Singular values of centred features; one row for each block, level and rank."""

    level: np.ndarray = column("Level", "", "'tokens', or 'images' for means over positions")
    rank: np.ndarray = column(
        "Rank", "", "1 for the largest singular value ... number of channels"
    )
    relative: np.ndarray = column(
        "Relative", "", "singular value over the largest; NaN where nothing varies"
    )
    share: np.ndarray = column("Share", "", "of the variance that lies in this direction")


@result_type("effective-ranks")
class EffectiveRanks(PerBlock):
    """How many directions features fill; one row for each block. NaN where nothing varies."""

    channels: np.ndarray = column("Channels", "", "how many there are, which no rank exceeds")
    token_rank: np.ndarray = column(
        "Effective rank of tokens",
        "",
        "exp(entropy) of the tokens' singular values, scaled to sum to 1",
    )
    token_participation: np.ndarray = column(
        "Participation ratio of tokens", "", "1 / sum of squared shares of the variance"
    )
    image_rank: np.ndarray = column(
        "Effective rank of images",
        "",
        "the same two of the images' means; under the number of images",
    )
    image_participation: np.ndarray = column("Participation ratio of images")


def effective_ranks(values: SingularValues) -> EffectiveRanks:
    """How many directions the features of each block fill, in one number.

    With p the singular values over their sum, the effective rank is exp(-sum p log p); with q
    the shares of the variance, the participation ratio is 1 / sum q^2, which weak directions
    count less in. Both are r for r equal singular values.

    Source: Roy and Vetterli (2007), eq. 1 to 4.
    """
    starts = np.flatnonzero((values.rank == 1) & (values.level == LEVELS[0]))
    blocks = values.block[starts]
    ranks = {level: ([], []) for level in LEVELS}
    for name in blocks.tolist():
        for level in LEVELS:
            rows = values.select((values.block == name) & (values.level == level))
            p = rows.relative / rows.relative.sum()
            entropy = -(p * np.log(np.where(p > 0, p, 1))).sum()
            ranks[level][0].append(np.exp(entropy))
            ranks[level][1].append(1 / (rows.share**2).sum())
    columns = ("block", "kind", "stage", "depth", "subsampling")
    return EffectiveRanks(
        **{name: getattr(values, name)[starts] for name in columns},
        channels=np.array([values.rank[values.block == name].max() for name in blocks]),
        token_rank=np.array(ranks["tokens"][0]),
        token_participation=np.array(ranks["tokens"][1]),
        image_rank=np.array(ranks["images"][0]),
        image_participation=np.array(ranks["images"][1]),
        provenance=values.provenance,
    )


class SingularValueProbe(Probe):
    """Gathers the `SingularValues` of all blocks.

    Keeps two matrices of (channels + 1)^2 numbers for each block, whatever the number of images
    and positions: 67 MB for a block of 2048 channels, 330 MB for all of a ResNet-50.
    """

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "2 d d"]:
        """Sums of products of channels, over tokens and over images; d is c + 1.

        A channel of ones stands first, so that counts and sums are in them. Costs h w c^2
        multiplications an image, in float64: a spectrum spans many decades.
        """
        tokens = rearrange(x, "b c h w -> (b h w) c").double()
        means = x.double().mean((2, 3))
        return torch.stack([_products(tokens), _products(means)])

    def update(self, batch: Mapping[Block, Float[Tensor, "2 _ _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        self.add({block: extract.cpu().numpy() for block, extract in batch.items()})

    def result(self) -> SingularValues:
        """The singular values of every block; see `Probe.result`."""
        blocks = list(self.gathered())
        variances = [np.stack([_variances(s) for s in self.sums[block]]) for block in blocks]
        with np.errstate(invalid="ignore"):  # 0 / 0 where nothing varies
            relative = [np.sqrt(v / v[:, :1]).ravel() for v in variances]
            share = [(v / v.sum(1, keepdims=True)).ravel() for v in variances]
        sizes = [v.shape[1] for v in variances]
        rows = [b for b, size in zip(blocks, sizes, strict=True) for _ in range(2 * size)]
        return SingularValues(
            **described(rows),
            level=np.concatenate([np.repeat(LEVELS, size) for size in sizes]),
            rank=np.concatenate([np.tile(np.arange(1, size + 1), 2) for size in sizes]),
            relative=np.concatenate(relative),
            share=np.concatenate(share),
        )


def _products(rows: Float[Tensor, "n c"]) -> Float[Tensor, "d d"]:
    """Sum over rows of the products of their entries, a one before the first."""
    with_ones = torch.cat([torch.ones_like(rows[:, :1]), rows], dim=1)
    return with_ones.T @ with_ones


def _variances(products: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "c"]:
    """Variances along the principal directions, largest first."""
    second = products[1:, 1:] / products[0, 0]
    mean = products[0, 1:] / products[0, 0]
    values = np.linalg.eigvalsh(second - np.outer(mean, mean))[::-1]
    return np.where(values > _FLOOR * len(values) * np.trace(second), values, 0.0)
