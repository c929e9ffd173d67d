"""Attention: statistics of every head, maps of single queries, and rollouts.

Sources: Dosovitskiy et al. (2021), An image is worth 16x16 words, fig. 7 (distance); Park et
al. (2023), What do self-supervised vision transformers learn?, sec. 2 (normalized mutual
information); Abnar and Zuidema (2020), Quantifying attention flow in transformers (rollout).
"""

import numpy as np

from visprism.core.statistics import t_quantile
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text
from visprism.table.result import Result, result_type, scalar
from visprism.table.result import column as quantity

# Quantities whose means over all heads are answers, by column.
MEANS_OVER_HEADS = {
    "distance": "mean attention distance, mean over heads",
    "nmi": "normalized mutual information, mean over heads",
}


@result_type("attention-statistics")
class AttentionStatistics(Result):
    """Statistics of each head of each attention; one row per head. Errors are over images."""

    block: np.ndarray = quantity(
        "Block", "", "name of the attention's block; '#2' for the second in one block"
    )
    stage: np.ndarray = quantity("Stage", "", "of the block; 0 for the stem")
    depth: np.ndarray = quantity(
        "Normalized depth", "", "0 for the stem, 1 for the last block before the head"
    )
    head: np.ndarray = quantity("Head", "", "number of the head, from 1")
    distance: np.ndarray = quantity(
        "Mean attention distance",
        "pixels",
        "mean distance from a query to the keys that it attends to, by weight",
    )
    distance_error: np.ndarray = quantity(
        "Standard error of the distance", "pixels", "over images"
    )
    entropy: np.ndarray = quantity(
        "Entropy of attention", "nats", "of a query's weights; log(keys) for uniform attention"
    )
    entropy_error: np.ndarray = quantity("Standard error of the entropy", "nats", "over images")
    keys: np.ndarray = quantity("Keys", "", "number of keys that a query can attend to")
    nmi: np.ndarray = quantity(
        "Normalized mutual information",
        "",
        "of queries and keys: 0 if all queries attend alike, 1 if each attends to its own key",
    )
    nmi_error: np.ndarray = quantity(
        "Standard error of the mutual information", "", "over images"
    )
    prefix_share: np.ndarray = quantity(
        "Weight on tokens off the grid",
        "",
        "fraction of the weight on class tokens, registers and padding",
    )
    prefix_share_error: np.ndarray = quantity(
        "Standard error of the weight off the grid", "", "over images"
    )
    redundancy: np.ndarray = quantity(
        "Cosine similarity between heads",
        "",
        "mean cosine of its weights with those of the other heads; NaN for one head",
    )
    redundancy_error: np.ndarray = quantity(
        "Standard error of the cosine similarity", "", "over images"
    )
    mean_distance: float = scalar(
        "Mean attention distance, all heads",
        "pixels",
        "mean over heads and images",
        default=np.nan,
    )
    mean_distance_error: float = scalar(
        "Standard error of the mean distance", "pixels", "over images", default=np.nan
    )
    mean_nmi: float = scalar(
        "Normalized mutual information, all heads",
        "",
        "mean over heads and images",
        default=np.nan,
    )
    mean_nmi_error: float = scalar(
        "Standard error of the mean mutual information", "", "over images", default=np.nan
    )

    def findings(self) -> tuple[Finding, ...]:
        """Mean over heads, and the blocks where it is smallest and largest."""
        return (
            self._finding("mean attention distance", "distance", " pixels"),
            self._finding("normalized mutual information of attention", "nmi", ""),
        )

    def _finding(self, words: str, name: str, unit: str) -> Finding:
        blocks = list(dict.fromkeys(self.block.tolist()))
        values = getattr(self, name)
        means = [float(values[self.block == block].mean()) for block in blocks]
        least, most = int(np.argmin(means)), int(np.argmax(means))
        text = f"{words} {interval_text(*self._mean(name))}"
        images = images_text(self.provenance.images, self.provenance.split)
        text += f"{unit}, mean over {len(self)} heads and {images}"
        if means[least] != means[most]:
            text += (
                f"; of {len(blocks)} attention layers (mean over heads) the smallest is "
                f"{means[least]:.3g} ({blocks[least]}) and the largest {means[most]:.3g} "
                f"({blocks[most]}), both without an interval"
            )
        return Finding(text)

    def _mean(self, name: str) -> tuple[float, float, float]:
        """Mean over heads and images, with the ends of its interval over images."""
        mean, error = getattr(self, f"mean_{name}"), getattr(self, f"mean_{name}_error")
        if not np.isfinite(mean):  # files of version 0.1 have none
            mean = float(getattr(self, name).mean())
        margin = t_quantile(self.provenance.images) * error
        return mean, mean - margin, mean + margin

    def answers(self) -> tuple[Answer, ...]:
        """Mean distance and mutual information over all heads."""
        rows = (
            (questions.ATTENTION_DISTANCE.text, "distance", "pixels"),
            (questions.ATTENTION_NMI.text, "nmi", ""),
        )
        answers = []
        for question, name, unit in rows:
            value, low, high = self._mean(name)
            answers.append(
                Answer(
                    question=question,
                    quantity=MEANS_OVER_HEADS[name],
                    value=value,
                    low=low,
                    high=high,
                    unit=unit,
                    over="images",
                )
            )
        return tuple(answers)


@result_type("attention-maps")
class AttentionMaps(Result):
    """Weights of one query; one row for each attention, head and place of its keys' grid."""

    block: np.ndarray = quantity(
        "Block", "", "name of the attention's block; '#2' for the second in one block"
    )
    head: np.ndarray = quantity("Head", "", "number of the head, from 1")
    row: np.ndarray = quantity("Row", "", "of the keys' grid, from 0")
    column: np.ndarray = quantity("Column", "", "of the keys' grid, from 0")
    weight: np.ndarray = quantity(
        "Attention weight",
        "",
        "the weights of all keys add up to 1; 0 outside the query's window",
    )
    query: str = scalar("Query", "", "'class', 'mean', or 'row,column' in pixels")


@result_type("rollout")
class Rollout(Result):
    """Attention followed through all blocks; one row for each place of the grid."""

    row: np.ndarray = quantity("Row", "", "of the token grid, from 0")
    column: np.ndarray = quantity("Column", "", "of the token grid, from 0")
    weight: np.ndarray = quantity("Rollout weight", "", "how much the place reaches the output")
    method: str = scalar("Method", "", "'attention', or 'gradient'")
    readout: str = scalar(
        "Readout",
        "",
        "tokens that the head reads, over which the rollout is averaged",
        default="",
    )
