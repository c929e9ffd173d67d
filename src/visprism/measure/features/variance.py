"""Variance probe: gathers how much the positions of a feature map differ.

The variance over grid positions of one image and channel, unbiased, and its mean over channels
and images. Blocks that average over positions lower it.

Source: Park and Kim (2022), How do vision transformers work?, fig. 9.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int8
from torch import Tensor

from visprism.anatomy import Block
from visprism.core.run import stream
from visprism.core.statistics import standard_error
from visprism.measure.features.cache_chunks import cache_chunks, channel_mean
from visprism.measure.features.per_block import (
    block_columns,
    blocks_before,
    grid_of,
    image_sums,
    kind_means,
    on_one_grid,
    predecessors,
)
from visprism.measure.features.probe import Probe
from visprism.results.kind_summary import SCALE_FREE, VARIANCE, mean_change
from visprism.results.variance import PROJECTIONS, Variances

_LOGS = {"log_ratio": VARIANCE, "relative_log_ratio": SCALE_FREE}


class VarianceProbe(Probe):
    """Gathers the `Variances` of all blocks."""

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Mean squared deviation over positions and mean square, mean over channels, by image.

        Then follow 8 random projections of the map, and for each of the c channels whether it
        is 0 everywhere (d = c + 10). Costs two reads of the map.
        """
        chunks = [_moments(chunk) for chunk in cache_chunks(x)]
        means = torch.cat([channel_mean(moments, x) for moments in chunks])
        dead = torch.cat([_by_channel(moments[:, 1], x) == 0 for moments in chunks])
        return torch.cat([means, _projections(x).to(means), dead.to(means)], dim=1)

    def update(self, batch: Mapping[Block, Float[Tensor, "_ _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        ratios: dict[str, dict[Block, np.ndarray]] = {name: {} for name in _LOGS}
        by_block = {b: extract.cpu().double().numpy() for b, extract in batch.items()}
        for block, before in blocks_before(batch).items():
            values = by_block[block]
            deviation, square = moments = values[:, :2].T
            earlier = np.full_like(deviation, np.nan)
            moments_before = None if before is None else by_block[before][:, :2].T
            if moments_before is not None and on_one_grid(block, before):
                earlier = moments_before[0]
                if prod(grid_of(block)) > 1:
                    for name, ratio in zip(_LOGS, _logs(moments, moments_before), strict=True):
                        ratios[name][block] = ratio
                        self.add({(name, block): image_sums(ratio)})
            terms = np.stack([np.ones_like(deviation), deviation, square, earlier])
            self.add({block: terms @ terms.T})  # sums, and sums of products
            sketch = values[:, 2 : 2 + PROJECTIONS]
            if (
                before is not None
                and moments_before is not None
                and block.shape == before.shape
            ):
                sketch_before = by_block[before][:, 2 : 2 + PROJECTIONS]
                distances = ((sketch - sketch_before) ** 2).sum(0)
                self.add({("step", block): np.append(distances, moments_before[1].sum())})
            self.add({("dead", block): values[:, 2 + PROJECTIONS :].sum(0)})
        for name, log_ratios in ratios.items():
            for kind, means in kind_means(log_ratios, self.between).items():
                self.add({(name, kind): image_sums(means)})
                self.record(mean_change(_LOGS[name], kind), means)

    def result(self) -> Variances:
        """The variances of every block; see `Probe.result`."""
        blocks = [key for key in self.gathered() if isinstance(key, Block)]
        sums = np.stack([self.sums[block] for block in blocks])
        positions = np.array([prod(grid_of(block)) for block in blocks])
        with np.errstate(divide="ignore"):
            unbiased = np.where(positions > 1, positions / (positions - 1), np.nan)
        images, deviation, _, _ = sums[:, 0].T
        relative, relative_error = _ratio(sums, 1, 2)
        growth, growth_error = _ratio(sums, 1, 3)
        logs: dict[str, Any] = {}
        for name in _LOGS:
            logs[name], logs[f"{name}_error"] = self._means(name, blocks)
            _, logs[f"kind_{name}_error"] = self._means(name, [block.kind for block in blocks])
        dead = [self.sums["dead", block] for block in blocks]
        feature_change, feature_change_error = self._feature_changes(blocks)
        return Variances(
            **block_columns(blocks),
            **predecessors(blocks, self.between),
            **logs,
            variance=unbiased * deviation / images,
            variance_error=unbiased * standard_error(deviation, sums[:, 1, 1], images),
            relative=unbiased * relative,
            relative_error=unbiased * relative_error,
            change=growth - 1 + 0 * unbiased,
            change_error=growth_error + 0 * unbiased,
            feature_change=feature_change,
            feature_change_error=feature_change_error,
            dead_channels=np.array(
                [(d == n).mean() for d, n in zip(dead, images, strict=True)]
            ),
        )

    def _feature_changes(
        self, blocks: list[Block]
    ) -> tuple[Float[np.ndarray, "blocks"], Float[np.ndarray, "blocks"]]:
        """Root mean square of output minus input over that of the input, with its error.

        The mean square of the difference has one estimate by projection, whose spread gives the
        standard error of their mean; that of the root is by the delta method.
        """
        without = np.full(PROJECTIONS + 1, np.nan)
        steps = np.stack([self.sums.get(("step", block), without) for block in blocks])
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = steps[:, :-1] / steps[:, -1:]
            change = np.sqrt(squares.mean(1))
            error = squares.std(1, ddof=1) / np.sqrt(PROJECTIONS) / (2 * change)
        return change, np.where(change == 0, 0.0, error)

    def _means(
        self, name: str, keys: list[Any]
    ) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
        """Means over images and their standard errors, by block or by kind; NaN without one."""
        empty = np.zeros(3)
        count, total, squares = np.stack([self.sums.get((name, key), empty) for key in keys]).T
        with np.errstate(invalid="ignore"):
            return total / count, standard_error(total, squares, count)


def _projections(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 8"]:
    """Sums of a map with random signs, sum over c, y, x of s_cyx x_cyx / sqrt(c h w).

    Every number of the map has independent signs. The mean square of a projection is the mean
    square of the map, so that the difference of two maps' projections estimates how far they
    are apart. Equal maps have equal projections.
    """
    channels, *grid = x.shape[1:]
    channels_last = x.stride(1) == 1 and channels > 1
    # In the order of memory, so that no copy is made.
    flat = x.permute(0, 2, 3, 1).flatten(1) if channels_last else x.flatten(1)
    signs = _signs(channels, prod(grid), channels_last=channels_last)
    return flat @ signs.to(x) / x[0].numel() ** 0.5


@lru_cache(maxsize=8)
def _signs(channels: int, positions: int, *, channels_last: bool) -> Int8[Tensor, "n 8"]:
    """Random signs of each number of a map, the same in every pass, process and order."""
    size = channels * positions
    draws = torch.randint(2, (size, PROJECTIONS), generator=stream(0, "projections", size))
    signs = (2 * draws - 1).to(torch.int8)
    if channels_last:
        return rearrange(signs, "(c p) r -> (p c) r", c=channels).contiguous()
    return signs


def _logs(
    moments: Float[np.ndarray, "2 b"], before: Float[np.ndarray, "2 b"]
) -> Float[np.ndarray, "2 b"]:
    """Change of the log variance, and of the log of variance over mean square, by image."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log, log_before = np.log(moments), np.log(before)
        variance, square = log - log_before
    return np.stack([variance, variance - square])


def _by_channel(
    values: Float[Tensor, "m r"], x: Float[Tensor, "b c h w"]
) -> Float[Tensor, "_ c"]:
    """One row per image of what was computed from a chunk of `x`, whatever its memory order."""
    return rearrange(values, "(b q) r -> b (q r)", q=x.shape[1] // values.shape[1])


def _moments(chunk: Float[Tensor, "m h w r"]) -> Float[Tensor, "m 2 r"]:
    """Mean squared deviation from the mean, and mean square.

    The mean goes first: the difference of two large sums would leave no digits.
    """
    mean = chunk.mean((1, 2), keepdim=True)
    deviation = (chunk - mean).square_().mean((1, 2))
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
