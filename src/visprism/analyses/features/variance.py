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

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.core.run import stream
from visprism.estimates.estimated import Estimated, mean, ratio
from visprism.estimates.findings import Finding
from visprism.estimates.text import some_of
from visprism.passes.blocks import block_columns, grid_of
from visprism.passes.features import Arrays, Extracts, Seen
from visprism.table.kinds import SCALE_FREE, VARIANCE, KindSummary, summarize_by_kind
from visprism.table.result import Result, column, estimate, result_type
from visprism.table.shapes import ChangePerBlock, ScalarPerBlock

_PROJECTIONS = 8  # random ones, by which the change of the features is estimated
_UNCHANGED = 1e-6  # relative change of features that is rounding


@result_type("variances")
class Variances(ScalarPerBlock, ChangePerBlock):
    """Feature-map variance; one row for each block. NaN where a map has only one position."""

    value_name = "variance"
    scale = "log"

    variance: Estimated = estimate(
        "Feature-map variance", "", "over positions, unbiased; mean over channels and images"
    )
    relative: Estimated = estimate(
        "Variance / mean square", "", "mean variance over mean square: does not depend on scale"
    )
    change: Estimated = estimate(
        "Relative change of the variance",
        "",
        "variance over the previous block's variance, minus 1; NaN if grids differ",
    )
    feature_change: np.ndarray = column(
        "Change of the features",
        "",
        "root mean square of output minus input over the input's, estimated by 8 random "
        "projections; NaN if the shapes differ",
    )
    dead_channels: np.ndarray = column(
        "Dead channels", "", "fraction of channels that are 0 everywhere in all images"
    )

    def sentences(self) -> Iterator[str | Finding]:
        """Dead channels, blocks that change nothing, and changes across blocks off the grid."""
        yield from self.gaps()
        dead = np.flatnonzero(self.dead_channels > 0)
        if len(dead):
            parts = [f"{self.block[i]} {self.dead_channels[i]:.1%}" for i in dead]
            yield Finding(
                f"dead channels (0 everywhere in {self.images_text}) in {len(dead)} of "
                f"{len(self)} blocks: {some_of(parts)}",
                "VP108",
            )
        idle = self.block[self.feature_change < _UNCHANGED].tolist()
        if idle:
            yield Finding(
                f"blocks that change nothing: {len(idle)} ({some_of(idle)}), as with "
                "zero-initialized residual branches",
                "VP109",
            )


@ANALYSES.register
class Variance(FeatureAnalysis):
    """Variance of feature maps over positions, by block."""

    name = "variance"
    source = "Park & Kim (2022), fig. 9"
    claims = ("C8",)
    sections = (
        Section(
            Variances,
            "Feature-map variance",
            "Each point is a block: the variance of its feature maps over positions. The "
            "variance grows with the scale of the residual stream; variance over mean square "
            "does not depend on it.",
            figures={"": {}, "relative": {"quantity": "relative"}},
        ),
        Section(
            KindSummary,
            "Feature-map variance by kind of block",
            "Each point is the mean change of the log variance across the blocks of one kind, "
            "with its 95% interval over images: -0.69 halves the variance.",
        ),
    )

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Mean squared deviation over positions and mean square, mean over channels, by image.

        Then follow 8 projections of the map, its sums with random signs over sqrt(c h w): their
        mean square is the map's, so that the difference of two maps' projections estimates how
        far the maps are apart. The last c numbers are whether each channel is 0 everywhere
        (d = c + 10). Costs three reads of the map.
        """
        # The mean goes first: the difference of two large sums would leave no digits.
        average = x.mean((2, 3), keepdim=True)
        deviation = (x - average).square_().mean((2, 3))
        square = deviation + average[:, :, 0, 0].square()
        means = torch.stack([deviation.mean(1), square.mean(1)], dim=1)
        flat = x.flatten(1)
        signs = _signs(flat.shape[1], x.device).to(x.dtype)
        projections = flat @ signs / flat.shape[1] ** 0.5
        return torch.cat([means, projections, (square == 0).to(means)], dim=1)

    def by_image(self, extracts: Extracts) -> Arrays:
        """The two moments and the projections of each block."""
        return {b: x[:, : 2 + _PROJECTIONS].numpy() for b, x in extracts.items()}

    def sums(self, extracts: Extracts, batch: int, seed: int) -> Arrays:
        """Number of images in which each channel is 0 everywhere."""
        return {b: x[:, 2 + _PROJECTIONS :].sum(0).numpy() for b, x in extracts.items()}

    def results(self, seen: Seen) -> Sequence[Result]:
        """The variances, and their change by kind of block."""
        blocks, neighbors = seen.blocks, seen.neighbors
        values = np.stack([seen.by_image[b] for b in blocks], axis=1).astype(np.float64)
        positions = np.array([prod(grid_of(block)) for block in blocks])
        values[:, :, 0] *= np.where(
            positions > 1, positions / np.maximum(positions - 1, 1), np.nan
        )
        before = neighbors.before(values)
        pairs = zip(blocks, neighbors.previous, strict=True)
        alike = [
            previous is not None and block.shape == previous.shape for block, previous in pairs
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_ratio, log_square_ratio = np.log((values / before)[:, :, :2]).transpose(2, 0, 1)
            step = ((values - before)[:, :, 2:] ** 2).sum(0).mean(1) / before[:, :, 1].sum(0)
            changes = {VARIANCE: log_ratio, SCALE_FREE: log_ratio - log_square_ratio}
        variances = Variances(
            **block_columns(blocks),
            **neighbors.columns(),
            variance=mean(values[:, :, 0]),
            relative=ratio(values[:, :, 0], values[:, :, 1]),
            change=ratio((values - before)[:, :, 0], before[:, :, 0]),
            feature_change=np.where(alike, step**0.5, np.nan),
            dead_channels=np.array([(seen.sums[b] == seen.images).mean() for b in blocks]),
        )
        return variances, summarize_by_kind(changes, neighbors.kinds, neighbors.eligible)


@lru_cache(maxsize=64)  # more than a network has sizes of maps
def _signs(size: int, device: torch.device) -> Int8[Tensor, "n 8"]:
    """Random signs of each number of a map, the same in every pass, process and order.

    They stay on the device: of a ResNet-50 at 224x224 they are 14 million bytes.
    """
    draws = torch.randint(2, (size, _PROJECTIONS), generator=stream(0, "projections", size))
    return (2 * draws - 1).to(torch.int8).to(device)
