"""Feature-map variance: how much the places of a feature map differ.

The variance over grid positions of one image and channel, unbiased, and its mean over channels
and images. Blocks that average over places lower it.

Source: Park and Kim (2022), How do vision transformers work?, fig. 9.
"""

from collections.abc import Mapping
from math import prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Block
from visprism.core.statistics import standard_error
from visprism.measure.features.cache_chunks import channel_mean, pieces
from visprism.measure.features.per_block import PerBlock, described, grid_of, on_one_grid
from visprism.measure.features.probe import Probe
from visprism.results.base import column, result_type


@result_type("variances")
class Variances(PerBlock):
    """Feature-map variance; one row for each block. NaN where a map has only one position."""

    variance: np.ndarray = column(
        "Variance", "", "over positions, unbiased; mean over channels and images"
    )
    variance_error: np.ndarray = column(
        "Variance error", "", "standard error over images; NaN for one image"
    )
    relative: np.ndarray = column(
        "Variance / mean square", "", "mean variance over mean square, free of the map's scale"
    )
    relative_error: np.ndarray = column("Relative error", "", "its standard error over images")
    change: np.ndarray = column(
        "Change across the block",
        "",
        "variance over that of the block before, less 1; NaN where grids differ",
    )
    change_error: np.ndarray = column(
        "Change error", "", "its standard error over images, paired"
    )


class VarianceProbe(Probe):
    """Gathers the `Variances` of all blocks."""

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 2"]:
        """Mean squared deviation over positions, and mean square, by image; mean over channels.

        Costs one read of the map.
        """
        return torch.cat([channel_mean(_moments(piece), x) for piece in pieces(x)])

    def update(self, batch: Mapping[Block, Float[Tensor, "_ 2"]]) -> None:
        """Add one batch; see `Probe.update`."""
        before, deviation_before = None, None
        for block, extract in batch.items():
            deviation, square = extract.cpu().double().numpy().T
            earlier = np.full_like(deviation, np.nan)
            if on_one_grid(block, before):
                earlier = deviation_before
            terms = np.stack([np.ones_like(deviation), deviation, square, earlier])
            self.add({block: terms @ terms.T})  # sums, and sums of products
            before, deviation_before = block, deviation

    def result(self) -> Variances:
        """The variances of every block; see `Probe.result`."""
        blocks = list(self.gathered())
        sums = np.stack([self.sums[block] for block in blocks])
        positions = np.array([prod(grid_of(block)) for block in blocks])
        with np.errstate(divide="ignore"):
            unbiased = np.where(positions > 1, positions / (positions - 1), np.nan)
        images, deviation, _, _ = sums[:, 0].T
        relative, relative_error = _ratio(sums, 1, 2)
        growth, growth_error = _ratio(sums, 1, 3)
        return Variances(
            **described(blocks),
            variance=unbiased * deviation / images,
            variance_error=unbiased * standard_error(deviation, sums[:, 1, 1], images),
            relative=unbiased * relative,
            relative_error=unbiased * relative_error,
            change=growth - 1 + 0 * unbiased,
            change_error=growth_error + 0 * unbiased,
        )


def _moments(piece: Float[Tensor, "m h w r"]) -> Float[Tensor, "m 2 r"]:
    """Mean squared deviation from the mean, and mean square.

    The mean goes first: the difference of two large sums would leave no digits.
    """
    mean = piece.mean((1, 2), keepdim=True)
    deviation = (piece - mean).square_().mean((1, 2))
    return torch.stack([deviation, deviation + mean[:, 0, 0].square()], dim=1)


def _ratio(
    sums: Float[np.ndarray, "blocks 4 4"], a: int, b: int
) -> tuple[Float[np.ndarray, "blocks"], Float[np.ndarray, "blocks"]]:
    """Mean of term `a` over mean of term `b`, and its standard error by the delta method.

    The error is that of the mean of a - R b over images, over the mean of b. NaN where b is 0.

    Source: Cochran (1977), Sampling techniques, sec. 2.11.
    """
    images, mean = sums[:, 0, 0], sums[:, 0, b] / sums[:, 0, 0]
    mean = np.where(mean > 0, mean, np.nan)
    ratio = sums[:, 0, a] / images / mean
    squares = sums[:, a, a] - 2 * ratio * sums[:, a, b] + ratio**2 * sums[:, b, b]
    return ratio, standard_error(np.zeros_like(squares), squares, images) / mean
