"""Token norms: medians by group of tokens, outliers, massive activations, attention sinks.

Sources: Darcet et al. (2024), Vision transformers need registers (outlier tokens); Sun et al.
(2024), Massive activations in large language models, sec. 2; Gu et al. (2025), When attention
sink emerges in language models, eq. 5 (the share of heads with a sink).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.anatomy.blocks.anatomy import Block
from visprism.anatomy.blocks.attention import Attention, Weights
from visprism.core.devices import in_float64
from visprism.core.options import option
from visprism.estimates import questions
from visprism.estimates.estimated import Ends, Estimated, Number, fraction, mean, skewed
from visprism.estimates.findings import Finding
from visprism.estimates.text import interval_text, missing_text, text_of
from visprism.passes.blocks import block_columns, grid_of
from visprism.passes.features import Arrays, Extracts, Seen
from visprism.passes.tokens import GROUPS, Tokens
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar
from visprism.table.shapes import Pictures, ScalarPerBlock, SeriesPerBlock, picture_columns

GROUP_NAMES = {
    "grid": "grid",
    "class": "class token",
    "register": "registers",
    "prefix": "prefix tokens",
}
MASSIVE = (100.0, 1000.0)  # absolute value, and multiple of the median; Sun et al. (2024)
_PICTURED = 6  # blocks whose outliers are pictured


@result_type("token-norm-medians")
class TokenNormMedians(SeriesPerBlock):
    """Median Euclidean norm of the tokens of an image, by block and group of tokens."""

    value_name = "norm"
    series_name = "tokens"

    tokens: Texts = column(
        "Tokens",
        "",
        "'grid'; 'class token' and 'registers': off the grid, read by the head or not; "
        "'prefix tokens' where that is not known",
    )
    norm: Estimated = estimate(
        "Token norm",
        "",
        "Euclidean norm over channels; median over the tokens of an image, mean over images",
    )


@result_type("outlier-tokens")
class OutlierTokens(ScalarPerBlock):
    """Tokens of the grid with a norm far above the median; one row for each block."""

    value_name = "share"

    share: Estimated = estimate(
        "Share of outlier tokens",
        "%",
        "fraction of the tokens of the grid whose norm exceeds the threshold; mean over images",
    )
    largest: Estimated = estimate(
        "Largest norm / median", "", "of the tokens of the grid of an image; mean over images"
    )
    threshold: float = scalar(
        "Threshold", "", "norm of an outlier over the median norm of its image and block"
    )
    mean_share: Number = estimate(
        "Share of outlier tokens, mean over blocks",
        "%",
        "no interval where fewer than 5 images differ from the median",
        question=questions.OUTLIERS,
    )

    def has_figure(self, *, quantity: str = "", **_: Any) -> bool:
        """Whether there are outliers at all; the largest norms have a figure in any case."""
        return bool(quantity) or bool((self.share > 0).any())

    def sentences(self) -> Iterator[str | Finding]:
        """Mean over blocks, and the block with the most."""
        most = int(np.argmax(self.share))
        images, average = self.images_text, self.answers()[0]
        text = (
            f"outlier tokens (norm above {self.threshold:g} times the median of the image): "
            f"{average} of the grid, mean over {len(self)} blocks and {images}"
            f"{missing_text(average)}"
        )
        if self.share[most] > 0:
            share = self.estimates()["share"].answer("", self.share[most])
            text += f"; the most at {self.block[most]}: {share}"
        yield text


@result_type("outlier-places")
class OutlierPlaces(Pictures):
    """Where outlier tokens lie, in the blocks that have the most; a row for each place."""

    value_name = "share"

    share: np.ndarray = column(
        "Share of images with an outlier",
        "",
        "fraction of images whose token at this position is an outlier",
    )


@result_type("massive-activations")
class MassiveActivations(ScalarPerBlock):
    """The largest activation of each block, with the median; one row for each block."""

    value_name = "log_ratio"

    log_ratio: Estimated = estimate(
        "log10(largest / median activation)",
        "",
        "absolute values that are not 0 of all tokens and channels; mean over images",
    )
    massive: np.ndarray = column(
        "Images with a massive activation",
        "",
        "fraction; its absolute value is above 100 and above 1,000 times the median",
    )
    on_prefix: np.ndarray = column(
        "Largest on a token off the grid", "", "fraction of images in which it is on one"
    )
    channel: np.ndarray = column(
        "Channel", "", "that has the largest activation in most images, from 0"
    )
    channel_share: np.ndarray = column(
        "Share of the channel", "", "fraction of images in which this channel has the largest"
    )

    def sentences(self) -> Iterator[str | Finding]:
        """Block and channel of the largest ratio, and blocks with massive activations."""
        most = int(np.argmax(self.log_ratio))
        massive = int((self.massive > 0.5).sum())
        number = self.log_ratio[most]
        ratio = interval_text(10**number, 10**number.low, 10**number.high)
        yield (
            f"largest activation of {len(self)} blocks: "
            f"{ratio} times the median (geometric mean) at {self.block[most]}, in "
            f"channel {self.channel[most]} for {self.channel_share[most]:.0%} of "
            f"{self.images_text}; "
            "massive activations (above 100, and above 1,000 times the median) in most images: "
            f"{massive} of {len(self)} blocks"
        )


@result_type("attention-sinks")
class AttentionSinks(ScalarPerBlock):
    """Heads in which one key receives much of the attention; a row for each attention."""

    value_name = "sink_heads"

    sink_heads: Estimated = estimate(
        "Heads with an attention sink",
        "",
        "fraction of heads and images in which one key receives more than the threshold",
    )
    largest: Estimated = estimate(
        "Largest attention received by one key",
        "",
        "of a head, mean over queries; then mean over heads, windows and images",
    )
    threshold: float = scalar("Threshold", "", "share of the attention of a head")
    mean_sink_heads: Number = estimate(
        "Heads with an attention sink, mean over attentions", default=np.nan
    )

    def sentences(self) -> Iterator[str | Finding]:
        """Mean over attentions, and the attention with the most sinks."""
        most = int(np.argmax(self.sink_heads))
        images = self.images_text
        text = (
            f"heads with an attention sink (a key receives more than {self.threshold:g}): "
            f"{text_of(self.mean_sink_heads, '.1%')}, mean over {len(self)} attention layers "
            f"and {images}"
        )
        if np.ptp(self.sink_heads):
            text += f"; the most at {self.block[most]}: {text_of(self.sink_heads[most], '.1%')}"
        yield text


@ANALYSES.register
class TokenNorms(FeatureAnalysis):
    """Norms of grid tokens, class tokens and registers; outliers and attention sinks.

    Costs three reads of each feature map, a selection of its median, and attention weights.
    """

    name = "token-norms"
    source = "Darcet et al. (2024); Sun et al. (2024), sec. 2; Gu et al. (2025)"
    sees = ("tokens", "attention")
    passes = 2.0
    sections = (
        Section(
            TokenNormMedians,
            "Token norms",
            "Each line is the median norm of the tokens of one group in an image, mean over "
            "images, with its 95% interval. The head reads class tokens and not registers.",
        ),
        Section(
            OutlierTokens,
            "Outlier tokens",
            "Each point is a block: the fraction of its grid tokens whose norm exceeds the "
            "threshold times the median of the same image and block. A model without such "
            "tokens is not drawn.",
            figures={"": {}, "largest": {"quantity": "largest"}},
        ),
        Section(
            OutlierPlaces,
            "Places of outlier tokens",
            "Each picture shows, for each grid position of a block, the fraction of images "
            "whose token there is an outlier. Blocks with the most outliers are shown.",
            table=False,
        ),
        Section(
            MassiveActivations,
            "Largest activations",
            "Each point is a block: the largest absolute activation over the median one, as a "
            "power of 10. At 3 it is 1,000 times the median.",
        ),
        Section(
            AttentionSinks,
            "Attention sinks",
            "Each point is an attention layer: the fraction of heads in which one key receives "
            "more than the threshold of the attention, averaged over queries.",
            figures={"": {}, "largest": {"quantity": "largest"}},
        ),
    )

    outlier_threshold: float = option(
        4.0,
        "norm above which a token is an outlier, as a multiple of the median norm in its image "
        "and block",
        above=1,
    )
    sink_threshold: float = option(
        0.3, "fraction of a head's attention above which a key is a sink", above=0, below=1
    )

    def extract(self, x: Tokens | Weights) -> Float[Tensor, "b *_"]:
        """What is needed of the tokens of one block, or of one attention.

        For n tokens (b, 2, n + 2): in the first row their norms, the largest absolute
        activation and the median one; in the second their groups, and channel and token of the
        largest. For attention (b, 2): the largest share that one key receives, its mean over
        queries, and the share of heads with a sink; both are means over heads and windows.
        """
        if isinstance(x, Weights):
            largest = x.values.mean(dim=3).amax(dim=-1)  # b windows heads
            sinks = (largest > self.sink_threshold).to(largest)
            return torch.stack([largest.mean((1, 2)), sinks.mean((1, 2))], dim=1)
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
        return torch.stack([in_float64(row) for row in rows], dim=1)

    def by_image(self, extracts: Extracts) -> Arrays:
        """For a block `_of_block` and the median norm of each group; for an attention all."""
        values: Arrays = {}
        for source, extract in extracts.items():
            values[source] = array = extract.double().numpy()
            if isinstance(source, Block):
                values[source] = _of_block(array, self.outlier_threshold)
                norms, codes = _norms(array)
                for code in np.unique(codes):
                    medians = np.median(norms[:, codes == code], axis=1)
                    values[GROUPS[code], source] = medians
        return values

    def sums(self, extracts: Extracts, batch: int, seed: int) -> Arrays:
        """Counts of outliers by position."""
        counts: Arrays = {}
        for block, extract in extracts.items():
            if isinstance(block, Block):
                ratios = _ratios(*_norms(extract.double().numpy()))
                counts[block] = (ratios > self.outlier_threshold).sum(0)
        return counts

    def results(self, seen: Seen) -> Sequence[Result]:
        """Medians, outliers and their places, massive activations; sinks if readable."""
        blocks = seen.blocks
        share, largest, log_ratio, on_prefix, massive, channel = (
            seen.stacked(i) for i in range(6)
        )
        counts = [np.bincount(values.astype(int)) for values in channel.T]
        outliers = OutlierTokens(
            **block_columns(blocks),
            share=mean(share, fraction),
            largest=mean(largest),
            threshold=self.outlier_threshold,
            mean_share=mean(share.mean(1), _not_negative),
        )
        activations = MassiveActivations(
            **block_columns(blocks),
            log_ratio=mean(log_ratio),
            massive=massive.mean(0),
            on_prefix=on_prefix.mean(0),
            channel=np.array([c.argmax() for c in counts]),
            channel_share=np.array([c.max() / c.sum() for c in counts]),
        )
        places, sinks = _places(seen, share.mean(0)), self._sinks(seen)
        return _medians(seen), outliers, *places, activations, *sinks

    def _sinks(self, seen: Seen) -> Sequence[AttentionSinks]:
        sources = [key for key in seen.by_image if isinstance(key, Attention)]
        if not sources:
            return ()
        values = np.stack([seen.by_image[source] for source in sources], axis=2)
        return (
            AttentionSinks(
                **block_columns([a.block for a in sources])
                | {"block": np.array([a.name for a in sources])},
                largest=mean(values[:, 0]),
                sink_heads=mean(values[:, 1], fraction),
                threshold=self.sink_threshold,
                mean_sink_heads=mean(values[:, 1].mean(1), fraction),
            ),
        )


def _norms(
    values: Float[np.ndarray, "b 2 _"],
) -> tuple[Float[np.ndarray, "b n"], Int[np.ndarray, "n"]]:
    """Norms of the tokens, and the codes of their groups."""
    return values[:, 0, :-2], values[0, 1, :-2].astype(int)


def _ratios(
    norms: Float[np.ndarray, "b n"], codes: Int[np.ndarray, "n"]
) -> Float[np.ndarray, "b g"]:
    """Norms of the tokens of the grid over the median of their image."""
    grid = norms[:, codes == 0]
    return grid / np.maximum(np.median(grid, axis=1), np.finfo(float).tiny)[:, None]


def _of_block(
    values: Float[np.ndarray, "b 2 _"], outlier_threshold: float
) -> Float[np.ndarray, "b 6"]:
    """Share of outliers, largest norm over the median, and the largest activation.

    The activation has four columns: log10 over the median activation, whether it is off the
    grid, whether it is massive, its channel.
    """
    norms, codes = _norms(values)
    ratio = _ratios(norms, codes)
    largest, median = np.maximum(values[:, 0, -2:], np.finfo(float).tiny).T
    channel, token = values[:, 1, -2:].astype(int).T
    columns = [
        (ratio > outlier_threshold).mean(1),
        ratio.max(1),
        np.log10(largest / median),
        codes[token] > 0,
        (largest > MASSIVE[0]) & (largest > MASSIVE[1] * median),
        channel,
    ]
    return np.stack(columns, axis=1)


def _medians(seen: Seen) -> TokenNormMedians:
    keys = [key for key in seen.by_image if isinstance(key, tuple)]
    return TokenNormMedians(
        **block_columns([block for _, block in keys]),
        tokens=np.array([GROUP_NAMES[group] for group, _ in keys]),
        norm=mean(np.stack([seen.by_image[key] for key in keys], axis=1)),
    )


def _places(seen: Seen, share: Float[np.ndarray, "m"]) -> Sequence[OutlierPlaces]:
    """Pictures of the blocks with the most outliers; nothing where there are none."""
    chosen = np.sort(np.argsort(-share, kind="stable")[:_PICTURED])
    pictured = [seen.blocks[i] for i in chosen if share[i] > 0]
    if not pictured:
        return ()
    counts = {b.name: seen.sums[b].reshape(grid_of(b)) for b in pictured}
    shares = {name: count / seen.images for name, count in counts.items()}
    return (OutlierPlaces(**picture_columns(shares, "share")),)


def _not_negative(values: Float[np.ndarray, "n rows"]) -> Ends:
    """The interval of skewed values, which are not negative."""
    low, high = skewed(values)
    return np.maximum(low, 0.0), high
