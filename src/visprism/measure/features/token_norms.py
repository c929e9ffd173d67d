"""Token norms: quantiles by group of tokens, outliers, massive activations, attention sinks.

Sources: Darcet et al. (2024), Vision transformers need registers (outlier tokens); Sun et al.
(2024), Massive activations in large language models, sec. 2; Gu et al. (2025), When attention
sink emerges in language models, eq. 5 (the share of heads with a sink).
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from visprism.anatomy import Attention, Block, Weights
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.core.statistics import mean_interval, standard_error
from visprism.measure.features.probe import Probe
from visprism.passes.blocks import block_columns, grid_of
from visprism.passes.tokens import GROUPS, Tokens
from visprism.results.token_norms import (
    GROUP_NAMES,
    MASSIVE,
    MEAN_SHARE,
    AttentionSinks,
    MassiveActivations,
    OutlierPlaces,
    OutlierTokens,
    TokenNorms,
)
from visprism.table.result import Result

PROBABILITIES = (0.01, 0.25, 0.5, 0.75, 0.99)

# Norms are counted in bins, 128 for each factor of 2: a quantile is off by 0.3% at most.
_PER_OCTAVE = 128
_LOWEST = -32  # log2 of the lowest bin; what lies below counts as 0
_BINS = 64 * _PER_OCTAVE + 1

_PICTURED = 6  # blocks whose outliers are pictured
_QUANTITIES = ("share", "largest", "log_ratio", "on_prefix", "massive")


class TokenNormProbe(Probe):
    """Gathers `TokenNorms`, and in the same pass outliers, massive activations and sinks.

    The state is 8,193 counts for each block and group of tokens, and one number for each place
    and channel of a block. Costs three reads of each feature map and a selection of its median.

    Args:
        outlier_threshold: norm above which a token is an outlier, over the median norm of the
            grid of its image and block.
        sink_threshold: fraction of the attention of a head above which a key is a sink.
    """

    sees = ("tokens", "attention")

    def __init__(self, outlier_threshold: float = 4.0, sink_threshold: float = 0.3) -> None:
        super().__init__()
        self.outlier_threshold, self.sink_threshold = outlier_threshold, sink_threshold

    def extract(self, x: Tokens | Weights) -> Float[Tensor, "b *_"]:
        """What is needed of the tokens of one block, or of one attention.

        Of n tokens (b, 2, n + 2): in the first row their norms, the largest absolute activation
        and the median one; in the second their groups, and channel and token of the largest. Of
        attention (b, 2 + p): see `_received`.
        """
        if isinstance(x, Weights):
            return _received(x, self.sink_threshold)
        off, grid = x.off_grid, x.grid
        norms = torch.cat([off.norm(dim=2), grid.norm(dim=1).flatten(1)], dim=1)
        sizes = torch.cat([off.flatten(1), grid.flatten(1)], dim=1).abs_()
        largest, where = sizes.max(dim=1)
        median = sizes.masked_fill_(sizes == 0, torch.nan).nanmedian(dim=1).values
        channels, places = off.shape[2], grid[0, 0].numel()
        on_grid = where - off[0].numel()
        channel = torch.where(on_grid < 0, where % channels, on_grid // places)
        token = torch.where(on_grid < 0, where // channels, off.shape[1] + on_grid % places)
        codes = torch.tensor([GROUPS.index(g) for g in x.groups], device=grid.device)
        rows = [
            torch.cat([norms, largest[:, None], median.nan_to_num()[:, None]], dim=1),
            torch.cat([codes.expand(len(grid), -1), channel[:, None], token[:, None]], dim=1),
        ]
        return torch.stack([row.double() for row in rows], dim=1)

    def update(self, batch: Mapping[Block | Attention, Float[Tensor, "b *_"]]) -> None:
        """Add one batch; see `Probe.update`."""
        shares, sinks = [], []
        for source, extract in batch.items():
            values = extract.cpu().double().numpy()
            if isinstance(source, Block):
                shares.append(self._add_tokens(source, values))
            else:
                codes = batch[source.block][0, 1, :-2].cpu().numpy().astype(int)
                self.add({source: _moments(_by_group(values, codes[codes > 0]).T)})
                sinks.append(values[:, 1])
        mean = np.mean(shares, axis=0)
        self.add({"mean": _moments(mean[None])})
        if sinks:
            self.add({"sinks": _moments(np.mean(sinks, axis=0)[None])})
        self.record(MEAN_SHARE, mean)

    def _add_tokens(self, block: Block, values: Float[np.ndarray, "b 2 _"]) -> np.ndarray:
        """Adds the numbers of one block; returns the share of outliers by image."""
        norms, codes = values[:, 0, :-2], values[0, 1, :-2].astype(int)
        for code in np.unique(codes):
            self.add({("norm", GROUPS[code], block): _histogram(norms[:, codes == code])})
        grid = norms[:, codes == 0]
        ratio = grid / np.maximum(np.median(grid, axis=1), np.finfo(float).tiny)[:, None]
        outliers = ratio > self.outlier_threshold
        largest, median = np.maximum(values[:, 0, -2:], np.finfo(float).tiny).T
        channel, token = values[:, 1, -2:].astype(int).T
        quantities = {
            "share": outliers.mean(1),
            "largest": ratio.max(1),
            "log_ratio": np.log10(largest / median),
            "on_prefix": codes[token] > 0,
            "massive": (largest > MASSIVE[0]) & (largest > MASSIVE[1] * median),
        }
        self.add({block: _moments(np.stack([quantities[name] for name in _QUANTITIES]))})
        self.add({("places", block): outliers.sum(0)})
        self.add({("channels", block): np.bincount(channel, minlength=block.shape[0])})
        return quantities["share"]

    def result(self) -> TokenNorms:
        """Quantiles of the norms by block and group; see `Probe.result`."""
        keys = [key for key in self.gathered() if isinstance(key, tuple) and key[0] == "norm"]
        rows = [(block, group) for _, group, block in keys for _ in PROBABILITIES]
        return TokenNorms(
            **block_columns([block for block, _ in rows]),
            tokens=np.array([GROUP_NAMES[group] for _, group in rows]),
            probability=np.tile(PROBABILITIES, len(keys)),
            norm=np.concatenate([_quantiles(self.sums[key]) for key in keys]),
        )

    def further_results(self) -> tuple[Result, ...]:
        """Outliers and where they lie, massive activations, and attention sinks if readable."""
        blocks = [key for key in self.gathered() if isinstance(key, Block)]
        count, total, squares = np.stack([self.sums[block] for block in blocks], axis=1)
        mean = dict(zip(_QUANTITIES, (total / count).T, strict=True))
        error = dict(zip(_QUANTITIES, standard_error(total, squares, count).T, strict=True))
        images, all_blocks, all_squares = self.sums["mean"][:, 0]
        low, high = mean_interval(np.concatenate(self.recorded[MEAN_SHARE]))
        outliers = OutlierTokens(
            **block_columns(blocks),
            **{
                n: v
                for name in ("share", "largest")
                for n, v in ((name, mean[name]), (f"{name}_error", error[name]))
            },
            threshold=self.outlier_threshold,
            mean_share=float(all_blocks / images),
            mean_share_error=float(
                standard_error(*(np.array(v) for v in (all_blocks, all_squares, images)))
            ),
            mean_share_low=max(low, 0.0) if low == low else low,
            mean_share_high=high,
        )
        channels = [self.sums["channels", block] for block in blocks]
        massive = MassiveActivations(
            **block_columns(blocks),
            log_ratio=mean["log_ratio"],
            log_ratio_error=error["log_ratio"],
            massive=mean["massive"],
            on_prefix=mean["on_prefix"],
            channel=np.array([counts.argmax() for counts in channels]),
            channel_share=np.array([counts.max() / counts.sum() for counts in channels]),
        )
        return (outliers, *self._places(blocks, mean["share"]), massive, *self._sinks())

    def _places(
        self, blocks: list[Block], share: Float[np.ndarray, "m"]
    ) -> tuple[OutlierPlaces, ...]:
        """Pictures of the blocks with the most outliers; nothing where there are none."""
        chosen = np.sort(np.argsort(-share, kind="stable")[:_PICTURED])
        pictured = [blocks[i] for i in chosen if share[i] > 0]
        if not pictured:
            return ()
        indices = [np.indices(grid_of(block)).reshape(2, -1) for block in pictured]
        images = self.sums["mean"][0, 0]
        return (
            OutlierPlaces(
                picture=np.repeat([b.name for b in pictured], [i.shape[1] for i in indices]),
                row=np.concatenate([row for row, _ in indices]),
                column=np.concatenate([column for _, column in indices]),
                share=np.concatenate([self.sums["places", b] / images for b in pictured]),
            ),
        )

    def _sinks(self) -> tuple[AttentionSinks, ...]:
        sources = [key for key in self.sums if isinstance(key, Attention)]
        if not sources:
            return ()
        count, total, squares = np.stack([self.sums[a] for a in sources], axis=1)
        mean, error = (total / count).T, standard_error(total, squares, count).T
        present = mean[2 + len(GROUPS) :] > 0
        received = np.where(present, mean[2 : 2 + len(GROUPS)], np.nan)
        names = [f"received_{group}" for group in GROUPS]
        return (
            AttentionSinks(
                **block_columns([a.block for a in sources])
                | {"block": np.array([a.name for a in sources])},
                largest=mean[0],
                largest_error=error[0],
                sink_heads=mean[1],
                sink_heads_error=error[1],
                **dict(zip(names, received, strict=True)),
                uniform=np.array([1 / a.geometry.keys.index.shape[1] for a in sources]),
                threshold=self.sink_threshold,
                mean_error=self._sink_error(),
            ),
        )

    def _sink_error(self) -> float:
        """Standard error over images of the mean share of sink heads of all attentions."""
        count, total, squares = self.sums["sinks"]
        return float(standard_error(total, squares, count)[0])


def _received(x: Weights, sink_threshold: float) -> Float[Tensor, "b _"]:
    """The largest share of the attention that one key receives, and the share of sink heads.

    Both are means over heads and windows. Then follows, for each key off the grid, what it
    receives; with windows, all such keys together. A key receives the mean of its weights over
    queries.
    """
    received = x.values.mean(dim=3)  # b windows heads keys
    largest = received.amax(dim=-1)
    off = torch.from_numpy(x.attention.geometry.keys.index == OFF_GRID).to(received)
    others = received.mean(dim=2) * off
    if others.shape[1] == 1:
        others = others[:, 0, off[0].bool()]
    else:
        others = others.sum(2).mean(1, keepdim=True)[:, : int(off.any())]
    means = [largest.mean((1, 2)), (largest > sink_threshold).to(largest).mean((1, 2))]
    return torch.cat([torch.stack(means, dim=1), others], dim=1)


def _by_group(
    values: Float[np.ndarray, "b _"], codes: Int[np.ndarray, "p"]
) -> Float[np.ndarray, "b 10"]:
    """What `_received` gives with the keys of each group added up, then their numbers."""
    others = values[:, 2:]
    if others.shape[1] != len(codes):  # keys that are not the tokens of the block: padding
        codes = np.full(others.shape[1], GROUPS.index("prefix"))
    groups = np.stack([others[:, codes == code].sum(1) for code in range(len(GROUPS))], axis=1)
    groups[:, 0] = 1 - others.sum(1)
    numbers = np.bincount(codes, minlength=len(GROUPS))
    numbers[0] = 1
    return np.concatenate([values[:, :2], groups, np.tile(numbers, (len(values), 1))], axis=1)


def _moments(values: Float[np.ndarray, "q b"]) -> Float[np.ndarray, "3 q"]:
    """Number, sum and sum of squares over images of each quantity."""
    values = values.astype(float)
    return np.stack([np.ones_like(values), values, values**2]).sum(2)


def _histogram(norms: Float[np.ndarray, "b n"]) -> Int[np.ndarray, "bins"]:
    with np.errstate(divide="ignore"):
        bins = np.floor((np.log2(norms) - _LOWEST) * _PER_OCTAVE) + 1
    return np.bincount(bins.clip(0, _BINS - 1).astype(int).ravel(), minlength=_BINS)


def _quantiles(counts: Int[np.ndarray, "bins"]) -> Float[np.ndarray, "p"]:
    """The norm that a fraction of the tokens does not exceed, as the middle of its bin."""
    total = np.cumsum(counts)
    bins = np.searchsorted(total, np.ceil(np.array(PROBABILITIES) * total[-1]).clip(1))
    return np.where(bins > 0, 2.0 ** (_LOWEST + (bins - 0.5) / _PER_OCTAVE), 0.0)
