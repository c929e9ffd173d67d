"""Feature-map variance: how much the positions of a feature map differ, by block.

The variance over grid positions of one image and channel, unbiased, and its mean over channels
and images. Blocks that average over positions lower it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int8
from matplotlib.axes import Axes
from torch import Tensor

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.core.run import stream
from visprism.drawing.depth import PlainLogFormatter, against_depth, kinds_key
from visprism.drawing.registry import figure
from visprism.estimates.estimated import Estimated, mean, ratio
from visprism.estimates.findings import Finding
from visprism.estimates.text import some_of
from visprism.passes.blocks import block_columns, grid_of
from visprism.passes.features import Arrays, Extracts, Seen
from visprism.table.kinds import SCALE_FREE, VARIANCE, KindSummary, gaps, summarize_by_kind
from visprism.table.result import Result, Texts, column, estimate, result_type
from visprism.table.shapes import ScalarPerBlock

_PROJECTIONS = 8  # random ones, by which the change of the features is estimated
_UNCHANGED = 1e-6  # relative change of features that is rounding


@result_type("variances")
class Variances(ScalarPerBlock):
    """Feature-map variance; one row for each block. NaN where a map has only one position."""

    value_name: ClassVar[str] = "variance"

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
    log_ratio: Estimated = estimate(
        "Change of log variance",
        "",
        "mean over images of the log of the variance over the previous block's variance",
    )
    relative_log_ratio: Estimated = estimate(
        "Change of log(variance / mean square)",
        "",
        "mean over images, minus the previous block's value; does not depend on scale",
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
    previous: Texts = column(
        "Previous block", "", "block that the changes refer to; empty if there is none"
    )
    between: Texts = column(
        "Blocks between", "", "blocks between the two that do not lie on a grid; usually empty"
    )

    def sentences(self) -> Iterator[str | Finding]:
        """Dead channels, blocks that change nothing, and changes across blocks off the grid."""
        yield from gaps(self)
        dead = np.flatnonzero(self.dead_channels > 0)
        if len(dead):
            parts = [f"{self.block[i]} {self.dead_channels[i]:.1%}" for i in dead]
            images = self.images_text
            yield Finding(
                f"dead channels (0 everywhere in {images}) in {len(dead)} of {len(self)} "
                f"blocks: {some_of(parts)}",
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
@dataclass(frozen=True)
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
        mean square is that of the map, so that the difference of two maps' projections
        estimates how far the maps are apart. The last c numbers are whether each channel is 0
        everywhere (d = c + 10). Costs three reads of the map.
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
        positions = np.array([prod(grid_of(block)) for block in blocks])
        with np.errstate(divide="ignore"):
            unbiased = np.where(positions > 1, positions / (positions - 1), np.nan)
        deviation, square = unbiased * seen.stacked(0), seen.stacked(1)
        before, square_before = neighbors.before(deviation), neighbors.before(square)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance_change = np.log(deviation / before)
            changes = {
                VARIANCE: variance_change,
                SCALE_FREE: variance_change - np.log(square / square_before),
            }
        variances = Variances(
            **block_columns(blocks),
            **neighbors.columns(),
            variance=mean(deviation),
            relative=ratio(deviation, square),
            change=ratio(deviation - before, before),
            log_ratio=mean(changes[VARIANCE]),
            relative_log_ratio=mean(changes[SCALE_FREE]),
            feature_change=self._feature_change(seen),
            dead_channels=np.array([(seen.sums[b] == seen.images).mean() for b in blocks]),
        )
        return variances, summarize_by_kind(changes, neighbors.kinds, neighbors.eligible)

    def _feature_change(self, seen: Seen) -> Float[np.ndarray, " blocks"]:
        """Root mean square of output minus input over the input's, by the projections."""
        changes = []
        for block, before in zip(seen.blocks, seen.neighbors.previous, strict=True):
            if before is None or block.shape != before.shape:
                changes.append(np.nan)
                continue
            x, y = (seen.by_image[b].astype(np.float64) for b in (before, block))
            with np.errstate(divide="ignore", invalid="ignore"):
                step = ((y[:, 2:] - x[:, 2:]) ** 2).sum(0).mean() / x[:, 1].sum()
            changes.append(step**0.5)
        return np.array(changes)


@figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: Variances, ax: Axes, *, quantity: Literal["variance", "relative"] = "variance"
) -> Axes:
    """Variance over positions against depth, absolute or scale-free.

    The axis is logarithmic: what a block does is a factor, and models differ by orders of
    magnitude. Where no feature map varies at all it is linear.
    """
    against_depth(ax, result, quantity)
    if (getattr(result, quantity) > 0).any():
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(PlainLogFormatter())
        ax.yaxis.set_minor_formatter(PlainLogFormatter(minor_thresholds=(2.5, 0.5)))
    ax.set_ylabel(result.infos()[quantity].heading)
    return ax


@lru_cache(maxsize=64)  # more than a network has sizes of maps
def _signs(size: int, device: torch.device) -> Int8[Tensor, "n 8"]:
    """Random signs of each number of a map, the same in every pass, process and order.

    They stay on the device: of a ResNet-50 at 224x224 they are 14 million bytes.
    """
    draws = torch.randint(2, (size, _PROJECTIONS), generator=stream(0, "projections", size))
    return (2 * draws - 1).to(torch.int8).to(device)
