"""Token norms: medians by group of tokens, outliers, massive activations, attention sinks.

Sources: Darcet et al. (2024), Vision transformers need registers (outlier tokens); Sun et al.
(2024), Massive activations in large language models, sec. 2; Gu et al. (2025), When attention
sink emerges in language models, eq. 5 (the share of heads with a sink).
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism import kit

GROUPS = {
    "grid": "grid",
    "class": "class token",
    "register": "registers",
    "prefix": "prefix tokens",
}
MASSIVE = (100.0, 1000.0)  # absolute value, and multiple of the median; Sun et al. (2024)
_PICTURED = 6  # blocks whose outliers are pictured
_BOTH = {"": {}, "largest": {"quantity": "largest"}}


@kit.result("token-norm-medians", "Token norms")
class TokenNormMedians(kit.SeriesPerBlock):
    """Median Euclidean norm of the tokens of an image, by block and group of tokens.

    Each line is the median norm of the tokens of one group in an image, mean over images, with
    its 95% interval. The head reads class tokens and not registers.
    """

    value_name = "norm"
    series_name = "tokens"

    tokens: kit.Texts = kit.column(
        "Tokens", "", "'prefix tokens' where it is not known whether the head reads them"
    )
    norm: kit.Estimated = kit.estimate("Token norm", "", "Euclidean norm over channels")


@kit.result("outlier-tokens", "Outlier tokens", figures=_BOTH)
class OutlierTokens(kit.ScalarPerBlock):
    """Tokens of the grid with a norm far above the median; one row for each block.

    Each point is a block: the fraction of its grid tokens whose norm exceeds the threshold
    times the median of the same image and block. A model without such tokens is not drawn.
    """

    value_name = "share"

    share: kit.Estimated = kit.estimate(
        "Share of outlier tokens", "%", reduce=kit.Reduce.FRACTION
    )
    largest: kit.Estimated = kit.estimate(
        "Largest norm / median", "", "of the tokens of the grid"
    )
    threshold: float = kit.scalar("Threshold", "", "multiple of the median norm")
    mean_share: kit.Number = kit.estimate(
        "Share of outlier tokens, mean over blocks",
        "%",
        "no interval where fewer than 5 images differ from the median",
        asks="Are there outlier tokens?",
        reduce=kit.Reduce.NOT_NEGATIVE,
    )

    def has_figure(self, *, quantity: str = "", **_: object) -> bool:
        """Whether there are outliers at all; the largest norms have a figure in any case."""
        return bool(quantity) or bool((self.share > 0).any())


@kit.result("outlier-places", "Places of outlier tokens", table=False)
class OutlierPlaces(kit.Pictures):
    """Where outlier tokens lie, in the blocks that have the most; a row for each place.

    Each picture shows, for each grid position of a block, the fraction of images whose token
    there is an outlier. Blocks with the most outliers are shown.
    """

    value_name = "share"

    share: np.ndarray = kit.column("Share of images with an outlier")


@kit.result("massive-activations", "Largest activations")
class MassiveActivations(kit.ScalarPerBlock):
    """The largest activation of each block, with the median; one row for each block.

    Each point is a block: the largest absolute activation over the median one, as a power of
    10. At 3 it is 1,000 times the median.
    """

    value_name = "log_ratio"

    log_ratio: kit.Estimated = kit.estimate(
        "log10(largest / median activation)",
        "",
        "absolute values that are not 0 of all tokens and channels; mean over images",
    )
    massive: np.ndarray = kit.column(
        "Images with a massive activation",
        "",
        "fraction; its absolute value is above 100 and above 1,000 times the median",
    )
    on_prefix: np.ndarray = kit.column(
        "Largest on a token off the grid", "", "fraction of images"
    )
    channel: np.ndarray = kit.column(
        "Channel", "", "that has the largest activation in most images, from 0"
    )
    channel_share: np.ndarray = kit.column(
        "Share of the channel", "", "fraction of these images"
    )


@kit.result("attention-sinks", "Attention sinks", figures=_BOTH)
class AttentionSinks(kit.ScalarPerBlock):
    """Heads in which one key receives much of the attention; a row for each attention.

    Each point is an attention layer: the fraction of heads in which one key receives more than
    the threshold of the attention, averaged over queries.
    """

    value_name = "sink_heads"

    sink_heads: kit.Estimated = kit.estimate(
        "Heads with an attention sink", "%", "of all images", reduce=kit.Reduce.FRACTION
    )
    largest: kit.Estimated = kit.estimate(
        "Largest attention received by one key",
        "",
        "of a head, mean over queries; then mean over heads, windows and images",
        reduce=kit.Reduce.MEAN.of("largest_received"),
    )
    threshold: float = kit.scalar("Threshold", "", "share of the attention of a head")
    mean_sink_heads: kit.Number = kit.estimate(
        "Heads with an attention sink, mean over attentions", reduce=kit.Reduce.FRACTION
    )


@kit.analysis
class TokenNorms(kit.FeatureAnalysis):
    """Norms of grid tokens, class tokens and registers; outliers and attention sinks.

    Costs three reads of each feature map, a selection of its median, and attention weights.
    """

    name = "token-norms"
    source = "Darcet et al. (2024); Sun et al. (2024), sec. 2; Gu et al. (2025)"
    sees = ("tokens", "attention")
    passes = 2.0
    gives = (TokenNormMedians, OutlierTokens, OutlierPlaces, MassiveActivations, AttentionSinks)
    summed = ("outliers",)

    outlier_threshold: float = kit.option(
        4.0,
        "norm above which a token is an outlier, as a multiple of the median norm in its image "
        "and block",
        above=1,
    )
    sink_threshold: float = kit.option(
        0.3, "fraction of a head's attention above which a key is a sink", above=0, below=1
    )

    def extract(self, x: kit.Tokens | kit.Weights) -> dict[str, Float[Tensor, "b *_"]]:
        """Sinks of an attention; norms and the largest activation of tokens."""
        if isinstance(x, kit.Weights):
            largest = x.values.mean(dim=3).amax(dim=-1)  # b windows heads
            sinks = (largest > self.sink_threshold).to(largest)
            return {"largest_received": largest.mean((1, 2)), "sink_heads": sinks.mean((1, 2))}
        grid = kit.in_float64(x.grid.norm(dim=1).flatten(1))
        ratio = grid / _median(grid).clamp(min=torch.finfo(grid.dtype).tiny)[:, None]
        outliers = ratio > self.outlier_threshold
        off, roles = kit.in_float64(x.off_grid.norm(dim=2)), np.array(x.roles)
        medians = {role: _median(off[:, roles == role]) for role in dict.fromkeys(x.roles)}
        return {
            "grid": _median(grid),
            **medians,
            "share": outliers.double().mean(1),
            "largest": ratio.amax(1),
            "outliers": outliers,
            **_largest_activation(x),
        }

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """Medians, outliers and their places, massive activations; sinks if readable."""
        share = seen["share"]
        counts = [np.bincount(channels.astype(int)) for channels in seen["channel"].T]
        results: list[kit.Result] = [
            seen.series(TokenNormMedians, GROUPS),
            seen.result(
                OutlierTokens,
                {"mean_share": share.mean(1)},
                threshold=self.outlier_threshold,
            ),
            *_places(seen, share.mean(0)),
            seen.result(
                MassiveActivations,
                massive=seen["massive"].mean(0),
                on_prefix=seen["on_prefix"].mean(0),
                channel=np.array([c.argmax() for c in counts]),
                channel_share=np.array([c.max() / c.sum() for c in counts]),
            ),
        ]
        if seen.sources("sink_heads"):
            mean_sink_heads = {"mean_sink_heads": seen["sink_heads"].mean(1)}
            results.append(
                seen.result(AttentionSinks, mean_sink_heads, threshold=self.sink_threshold)
            )
        return results


def _median(values: Float[Tensor, "b n"]) -> Float[Tensor, " b"]:
    """The median of each row; the mean of the middle two of an even number."""
    ordered, n = values.sort(dim=1).values, values.shape[1]
    return (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2


def _largest_activation(x: kit.Tokens) -> dict[str, Float[Tensor, " b"]]:
    """The largest absolute activation: over the median one, on which channel, off the grid."""
    sizes = torch.cat([x.off_grid.flatten(1), x.grid.flatten(1)], dim=1).abs_()
    largest, where = sizes.max(dim=1)
    median = sizes.masked_fill_(sizes == 0, torch.nan).nanmedian(dim=1).values.nan_to_num()
    largest, median = kit.in_float64(largest), kit.in_float64(median)
    tiny = torch.finfo(largest.dtype).tiny
    largest, median = largest.clamp(min=tiny), median.clamp(min=tiny)
    channels, on_grid = x.off_grid.shape[2], where - x.off_grid[0].numel()
    return {
        "log_ratio": torch.log10(largest / median),
        "on_prefix": on_grid < 0,
        "massive": (largest > MASSIVE[0]) & (largest > MASSIVE[1] * median),
        "channel": torch.where(on_grid < 0, where % channels, on_grid // x.grid[0, 0].numel()),
    }


def _places(seen: kit.PassResult, share: Float[np.ndarray, "m"]) -> Sequence[OutlierPlaces]:
    """Pictures of the blocks with the most outliers; nothing where there are none."""
    outliers = seen.total("outliers")
    chosen = np.sort(np.argsort(-share, kind="stable")[:_PICTURED])
    shares = {
        block.name: outliers[block].reshape(block.shape[1:]) / seen.images
        for block in (seen.blocks[i] for i in chosen if share[i] > 0)
    }
    return (OutlierPlaces.of_pictures(shares),) if shares else ()
