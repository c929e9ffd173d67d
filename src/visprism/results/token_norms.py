"""Token norms: quantiles by group of tokens, outliers, massive activations, attention sinks."""

from math import nan
from typing import ClassVar

import numpy as np

from visprism.core.statistics import mean_fraction_interval
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text, selection_text
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import Pictures, QuantilesPerBlock, ScalarPerBlock

GROUP_NAMES = {
    "grid": "grid",
    "class": "class token",
    "register": "registers",
    "prefix": "prefix tokens",
}
MEAN_SHARE = "share of outlier tokens, mean over blocks"
MASSIVE = (100.0, 1000.0)  # absolute value, and multiple of the median; Sun et al. (2024)


@result_type("token-norms")
class TokenNorms(QuantilesPerBlock):
    """Quantiles of the Euclidean norms of tokens, by block and group of tokens."""

    value_name: ClassVar[str] = "norm"
    series_name: ClassVar[str] = "tokens"

    tokens: np.ndarray = column(
        "Tokens",
        "",
        "'grid'; 'class token' and 'registers': off the grid, read by the head or not; "
        "'prefix tokens' where that is not known",
    )
    norm: np.ndarray = column(
        "Token norm", "", "Euclidean norm over channels; to 0.3%, over all images"
    )


@result_type("outlier-tokens")
class OutlierTokens(ScalarPerBlock):
    """Tokens of the grid with a norm far above the median; one row for each block."""

    value_name: ClassVar[str] = "share"

    share: np.ndarray = column(
        "Share of outlier tokens",
        "",
        "fraction of the tokens of the grid whose norm exceeds the threshold; mean over images",
    )
    share_error: np.ndarray = column("Standard error of the share", "", "over images")
    largest: np.ndarray = column(
        "Largest norm / median", "", "of the tokens of the grid of an image; mean over images"
    )
    largest_error: np.ndarray = column("Standard error of the largest", "", "over images")
    threshold: float = scalar(
        "Threshold", "", "norm of an outlier over the median norm of its image and block"
    )
    mean_share: float = scalar("Share of outlier tokens, all blocks", "", "mean over blocks")
    mean_share_error: float = scalar("Standard error of the mean share", "", "over images")
    mean_share_low: float = scalar(
        "Low",
        "",
        "lower end of the 95% interval of the mean share; NaN where fewer than 5 images "
        "differ from the median",
        default=nan,
    )
    mean_share_high: float = scalar("High", "", "upper end of that interval", default=nan)

    @property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """The 95% intervals of the shares, within 0 and 1; see `mean_fraction_interval`."""
        return mean_fraction_interval(self.share, self.share_error, self.provenance.images)

    def findings(self) -> tuple[Finding, ...]:
        """Mean over blocks, and the block with the most."""
        most = int(np.argmax(self.share))
        images = images_text(self.provenance.images, self.provenance.split)
        text = (
            f"outlier tokens (norm above {self.threshold:g} times the median of the image): "
            f"{self.answers()[0]} of the grid, mean over {len(self)} blocks and {images}"
        )
        if self.share[most] > 0:
            ends = (float(end[most]) for end in self.intervals)
            share = Answer("", "", float(self.share[most]), *ends, unit="%")
            text += f"; the most at {self.block[most]}: {share}{selection_text(len(self))}"
        return (Finding(text),)

    def answers(self) -> tuple[Answer, ...]:
        """The share, mean over blocks."""
        return (
            Answer(
                question=questions.OUTLIERS.text,
                quantity=MEAN_SHARE,
                value=self.mean_share,
                low=self.mean_share_low,
                high=self.mean_share_high,
                unit="%",
                over="images",
            ),
        )


@result_type("outlier-places")
class OutlierPlaces(Pictures):
    """Where outlier tokens lie, in the blocks that have the most; a row for each place."""

    value_name: ClassVar[str] = "share"

    share: np.ndarray = column(
        "Share of images with an outlier",
        "",
        "fraction of images whose token at this position is an outlier",
    )

    def findings(self) -> tuple[Finding, ...]:
        """Range of the shares of each block, and the number of images."""
        images = images_text(self.provenance.images, self.provenance.split)
        return tuple(Finding(f"{text} over {images}") for text in super().findings())


@result_type("massive-activations")
class MassiveActivations(ScalarPerBlock):
    """The largest activation of each block, beside the median; one row for each block."""

    value_name: ClassVar[str] = "log_ratio"

    log_ratio: np.ndarray = column(
        "log10(largest / median activation)",
        "",
        "absolute values that are not 0 of all tokens and channels; mean over images",
    )
    log_ratio_error: np.ndarray = column("Standard error of the logarithm", "", "over images")
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

    def findings(self) -> tuple[Finding, ...]:
        """Block and channel of the largest ratio, and blocks with massive activations."""
        most = int(np.argmax(self.log_ratio))
        massive = int((self.massive > 0.5).sum())
        low, high = (10 ** float(ends[most]) for ends in self.intervals)
        ratio = interval_text(10 ** float(self.log_ratio[most]), low, high)
        selected = selection_text(len(self)) if np.isfinite(low) else ""
        return (
            Finding(
                f"largest activation of {len(self)} blocks: "
                f"{ratio} times the median (geometric mean) at {self.block[most]}, in "
                f"channel {self.channel[most]} for {self.channel_share[most]:.0%} of "
                f"{images_text(self.provenance.images, self.provenance.split)}{selected}; "
                "massive activations (above 100 and 1,000 times the median) in most of them: "
                f"{massive} of {len(self)} blocks"
            ),
        )


@result_type("attention-sinks")
class AttentionSinks(ScalarPerBlock):
    """Attention that keys receive, mean over queries and heads; a row for each attention.

    NaN where an attention has no keys of a group.
    """

    value_name: ClassVar[str] = "sink_heads"

    sink_heads: np.ndarray = column(
        "Heads with an attention sink",
        "",
        "fraction of heads and images in which one key receives more than the threshold",
    )
    sink_heads_error: np.ndarray = column("Standard error of the fraction", "", "over images")
    largest: np.ndarray = column(
        "Largest attention received by one key",
        "",
        "of a head, mean over queries; then mean over heads, windows and images",
    )
    largest_error: np.ndarray = column("Standard error of the largest", "", "over images")
    received_grid: np.ndarray = column("Received by the grid", "", "share of the attention")
    received_class: np.ndarray = column(
        "Received by class tokens", "", "share of the attention"
    )
    received_register: np.ndarray = column(
        "Received by registers", "", "share of the attention"
    )
    received_prefix: np.ndarray = column(
        "Received by prefix tokens", "", "of which it is not known what reads them; or padding"
    )
    uniform: np.ndarray = column("Uniform share", "", "1 / number of keys")
    threshold: float = scalar("Threshold", "", "share of the attention of a head")
    mean_error: float = scalar(
        "Standard error of the mean",
        "",
        "over images, of the mean over attentions",
        default=nan,
    )

    @property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """The 95% intervals of the fractions of heads, as those of shares of outliers."""
        images = self.provenance.images
        return mean_fraction_interval(self.sink_heads, self.sink_heads_error, images)

    def findings(self) -> tuple[Finding, ...]:
        """Mean over attentions, and the attention with the most sinks."""
        most = int(np.argmax(self.sink_heads))
        images = images_text(self.provenance.images, self.provenance.split)
        mean = np.array([self.sink_heads.mean()])
        ends = mean_fraction_interval(mean, np.array([self.mean_error]), self.provenance.images)
        share = interval_text(float(mean[0]), float(ends[0][0]), float(ends[1][0]), ".1%")
        text = (
            f"heads with an attention sink (a key receives more than {self.threshold:g}): "
            f"{share}, mean over {len(self)} attention layers and {images}"
        )
        if np.ptp(self.sink_heads):
            low, high = (float(ends[most]) for ends in self.intervals)
            share = interval_text(float(self.sink_heads[most]), low, high, ".1%")
            selected = selection_text(len(self)) if np.isfinite(low) else ""
            text += f"; the most at {self.block[most]}: {share}{selected}"
        return (Finding(text),)
