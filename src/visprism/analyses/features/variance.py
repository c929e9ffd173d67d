"""Feature-map variance: how much the positions of a feature map differ, by block.

The variance over grid positions of one image and channel, unbiased, and its mean over channels
and images. Blocks that average over positions lower it.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor

from visprism import kit
from visprism.table.kinds import SCALE_FREE, VARIANCE, KindSummary

_PROJECTIONS = 8  # random ones, by which the change of the features is estimated
_UNCHANGED = 1e-6  # relative change of features that is rounding


@kit.result(
    "variances",
    "Feature-map variance",
    figures={"": {}, "relative": {"quantity": "relative"}},
    overview={"Variance /\nmean square": {"quantity": "relative"}},
)
class Variances(kit.ScalarPerBlock, kit.ChangePerBlock):
    """Feature-map variance; one row for each block. NaN where a map has only one position.

    Each point is a block: the variance of its feature maps over positions. The variance grows
    with the scale of the residual stream; variance over mean square does not depend on it.
    """

    value_name = "variance"
    scale = "log"

    variance: kit.Estimated = kit.estimate(
        "Feature-map variance", "", "over positions, unbiased; mean over channels and images"
    )
    relative: kit.Estimated = kit.estimate(
        "Variance / mean square", reduce=kit.Reduce.ratio("variance", "square")
    )
    change: kit.Estimated = kit.estimate(
        "Relative change of the variance",
        "",
        "variance over the previous block's variance, minus 1; NaN if grids differ",
        reduce=kit.Reduce.ratio("gain", "before"),
    )
    feature_change: np.ndarray = kit.column(
        "Change of the features",
        "",
        "root mean square of output minus input over the input's, estimated by 8 random "
        "projections; NaN if the shapes differ",
    )
    dead_channels: np.ndarray = kit.column(
        "Dead channels", "", "fraction of channels that are 0 everywhere in all images"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Changes across blocks off the grid, dead channels, and blocks that change nothing."""
        yield from self.gaps()
        dead = f"dead channels (0 everywhere in {self.images_text})"
        yield from self.flagged(self.dead_channels > 0, dead, "VP108")
        same = "blocks that change nothing, as with zero-initialized residual branches"
        yield from self.flagged(self.feature_change < _UNCHANGED, same, "VP109")


@kit.analysis
class Variance(kit.FeatureAnalysis):
    """Variance of feature maps over positions, by block."""

    name = "variance"
    source = "Park & Kim (2022), fig. 9"
    claims = ("C8",)
    gives = (Variances, KindSummary)
    summed = ("zero_channels",)

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, "b *_"]]:
        """Mean squared deviation over positions, and mean square, mean over channels.

        Also 8 projections of the map, its sums with random signs over sqrt(c h w): their mean
        square is the map's, so that the difference of two maps' projections estimates how far
        the maps are apart. And whether each channel is 0. Costs three reads of the map.
        """
        # The mean goes first: the difference of two large sums would leave no digits.
        average = x.mean((2, 3), keepdim=True)
        deviation = (x - average).square_().mean((2, 3))
        square = deviation + average[:, :, 0, 0].square()
        flat = x.flatten(1)
        projections = flat @ _signs(flat.shape[1], x.device).to(x.dtype)
        return {
            "variance": deviation.mean(1),
            "square": square.mean(1),
            "projections": projections / flat.shape[1] ** 0.5,
            "zero_channels": square == 0,
        }

    def results(self, seen: kit.PassResult) -> Sequence[Variances | KindSummary]:
        """The variances, and their change by kind of block."""
        blocks, square, projections = seen.blocks, seen["square"], seen["projections"]
        positions = np.array([prod(block.shape[1:]) for block in blocks])
        unbiased = np.where(positions > 1, positions / np.maximum(positions - 1, 1), np.nan)
        variance = seen["variance"] * unbiased
        before, square_before = seen.before(variance), seen.before(square)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_ratio, log_square = np.log(variance / before), np.log(square / square_before)
            step = ((projections - seen.before(projections)) ** 2).sum(0).mean(1)
            change = (step / square_before.sum(0)) ** 0.5
            changes = {VARIANCE: log_ratio, SCALE_FREE: log_ratio - log_square}
        zero = seen.total("zero_channels")
        variances = seen.result(
            Variances,
            {"variance": variance, "gain": variance - before, "before": before},
            feature_change=np.where(seen.neighbors.same_shape, change, np.nan),
            dead_channels=np.array([(zero[b] == seen.images).mean() for b in blocks]),
        )
        return variances, seen.by_kind(changes)


@lru_cache(maxsize=64)  # more than a network has sizes of maps
def _signs(size: int, device: torch.device) -> Int8[Tensor, "n 8"]:
    """Random signs of each number of a map, the same in every pass, process and order.

    They stay on the device: of a ResNet-50 at 224x224 they are 14 million bytes.
    """
    draws = torch.randint(2, (size, _PROJECTIONS), generator=kit.stream(0, "projections", size))
    return (2 * draws - 1).to(torch.int8).to(device)
