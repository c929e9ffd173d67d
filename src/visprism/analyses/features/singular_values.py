"""Singular values of features, and how many directions of its channels a block uses.

Rows of the feature matrix are either tokens, the channel vectors of all positions of all
images, or images, the means of those over positions. Their mean is subtracted; the squared
singular values are then the variances along the principal directions.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from visprism import kit
from visprism.drawing.depth import curves_of_blocks, depth_bar
from visprism.estimates.answers import Answer
from visprism.table.shapes import BLOCK_COLUMNS

LEVELS = ("tokens", "images")

# Times the number of channels and the mean square: variances below this may be rounding. Ten
# times the bound that numpy.linalg.matrix_rank takes.
_FLOOR = 10 * np.finfo(float).eps


@kit.result(
    "singular-values",
    "Singular values of features",
    figures={"": {}, "images": {"level": "images"}},
    table=False,
)
class SingularSpectrum(kit.PerBlock):
    """Singular values of centered features; one row for each block, level and rank.

    Each curve is a block: the singular values of its centered tokens, relative to the
    largest. Where a curve is steep, a few directions hold most of the variance.
    """

    level: kit.Texts = kit.column(
        "Level", "", "'tokens', or 'images' for means over the positions of an image"
    )
    rank: np.ndarray = kit.column("Rank of the singular value", "", "1 for the largest")
    relative: np.ndarray = kit.column(
        "Singular value / largest", "", "NaN where the features do not vary"
    )

    def effective_ranks(self) -> "EffectiveRanks":
        """How many directions the features of each block use, as one number.

        With p the singular values over their sum, the effective rank is exp(-sum p log p): r
        for r equal singular values.

        Source: Roy and Vetterli (2007), The effective rank: a measure of effective
        dimensionality, eq. 1 to 4.
        """
        starts = np.flatnonzero((self.rank == 1) & (self.level == LEVELS[0]))
        names = self.block[starts].tolist()
        ranks = np.array([[_rank(self, name, level) for level in LEVELS] for name in names])
        channels = np.array([self.rank[self.block == name].max() for name in names])
        filled = (ranks[:, 0] / channels)[np.isfinite(ranks[:, 0])]
        return EffectiveRanks(
            **{name: getattr(self, name)[starts] for name in BLOCK_COLUMNS},
            stream=self.select(starts).stream,
            channels=channels,
            token_rank=ranks[:, 0],
            image_rank=ranks[:, 1],
            filled=kit.Number(filled[-1] if len(filled) else np.nan, missing=ONE_NUMBER),
            provenance=self.provenance,
        )


ONE_NUMBER = "one number for all images"


def _rank(values: SingularSpectrum, name: str, level: str) -> float:
    """Effective rank of one block."""
    rows = values.select((values.block == name) & (values.level == level))
    p = rows.relative / rows.relative.sum()
    return np.exp(-(p * np.log(np.where(p > 0, p, 1))).sum())


@kit.result(
    "effective-ranks",
    "Effective rank of features",
    figures={"": {}, "images": {"quantity": "image_rank"}},
)
class EffectiveRanks(kit.ScalarPerBlock):
    """Effective rank of the features; one row for each block. NaN where nothing varies.

    Each point is a block: the effective rank of its features over channels.
    """

    value_name = "token_rank"
    scale = "zero"

    channels: np.ndarray = kit.column(
        "Channels", "", "number of channels, which no rank exceeds"
    )
    token_rank: np.ndarray = kit.column(
        "Effective rank of tokens",
        "",
        "exp(entropy) of the tokens' singular values, scaled to sum to 1",
    )
    image_rank: np.ndarray = kit.column(
        "Effective rank of images",
        "",
        "of the means over positions; less than the number of images",
    )
    filled: kit.Number = kit.estimate(
        "Effective rank of the last block's tokens / channels",
        "%",
        asks="How many directions do the tokens of an image use?",
        over="",
        default=np.nan,
    )

    def answers(self) -> tuple[Answer, ...]:
        """The fraction of the last block; none where nothing varies."""
        return super().answers() if np.isfinite(self.filled) else ()


@kit.analysis
class SingularValues(kit.FeatureAnalysis):
    """Singular values and effective rank of the features of each block.

    Keeps two matrices of (channels + 1)^2 numbers for each block, whatever the number of images
    and positions: 67 MB for a block of 2048 channels, 330 MB for all of a ResNet-50.
    """

    name = "singular-values"
    source = "Roy & Vetterli (2007)"
    passes = 1.8
    summed = ("products",)
    gives = (
        SingularSpectrum,
        EffectiveRanks,
    )

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, "1 2 d d"]]:
        """Sums of products of channels, over tokens and over images; d is c + 1.

        A channel of ones stands first, so that counts and sums are in them. Costs h w c^2
        multiplications an image, in float64: a spectrum spans many decades.
        """
        precise = kit.in_float64(x)
        tokens = rearrange(precise, "b c h w -> (b h w) c")
        return {
            "products": torch.stack([_products(tokens), _products(precise.mean((2, 3)))])[None]
        }

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The singular values of every block, and the effective ranks."""
        products = seen.total("products")
        blocks = list(products)
        variances = [np.stack(list(map(_variances, both))) for both in products.values()]
        with np.errstate(invalid="ignore"):  # 0 / 0 where nothing varies
            relative = [np.sqrt(v / v[:, :1]).ravel() for v in variances]
        sizes = [v.shape[1] for v in variances]
        rows = [b for b, size in zip(blocks, sizes, strict=True) for _ in range(2 * size)]
        values = SingularSpectrum(
            **kit.block_columns(rows),
            level=np.concatenate([np.repeat(LEVELS, size) for size in sizes]),
            rank=np.concatenate([np.tile(np.arange(1, size + 1), 2) for size in sizes]),
            relative=np.concatenate(relative),
        )
        return values, values.effective_ranks()


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


@kit.figure(width=2.5, height=2.3, key=depth_bar, key_width=0.75)
def _(
    result: SingularSpectrum, ax: Axes, *, level: Literal["tokens", "images"] = "tokens"
) -> Axes:
    """Singular values over the largest by rank, a curve per block, colored by depth."""
    chosen = result.select((result.level == level) & (result.relative > 0))
    curves_of_blocks(ax, chosen, "rank", "relative")
    ax.set(xscale="log", yscale="log", ylim=(1e-4, 1.3))
    ax.set(xlabel=f"Rank of the singular value ({level})", ylabel="Relative to the largest")
    return ax
