"""Singular values of features, and how many directions of its channels a block uses.

Source: Roy and Vetterli (2007), The effective rank: a measure of effective dimensionality.
"""

from typing import ClassVar

import numpy as np

from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.table.result import column, result_type
from visprism.table.shapes import BLOCK_COLUMNS, PerBlock, ScalarPerBlock

LEVELS = ("tokens", "images")


@result_type("singular-values")
class SingularValues(PerBlock):
    """Singular values of centered features; one row for each block, level and rank."""

    level: np.ndarray = column(
        "Level", "", "'tokens', or 'images' for means over the positions of an image"
    )
    rank: np.ndarray = column("Rank of the singular value", "", "1 for the largest")
    relative: np.ndarray = column(
        "Singular value / largest", "", "NaN where the features do not vary"
    )
    share: np.ndarray = column(
        "Explained variance", "", "fraction of the variance in this direction"
    )

    def effective_ranks(self) -> "EffectiveRanks":
        """How many directions the features of each block use, as one number.

        With p the singular values over their sum, the effective rank is exp(-sum p log p); with
        q the fractions of the variance, the participation ratio is 1 / sum q^2, in which weak
        directions count less. Both are r for r equal singular values.

        Source: Roy and Vetterli (2007), eq. 1 to 4.
        """
        starts = np.flatnonzero((self.rank == 1) & (self.level == LEVELS[0]))
        blocks = self.block[starts]
        ranks = {level: ([], []) for level in LEVELS}
        for name in blocks.tolist():
            for level in LEVELS:
                rows = self.select((self.block == name) & (self.level == level))
                p = rows.relative / rows.relative.sum()
                entropy = -(p * np.log(np.where(p > 0, p, 1))).sum()
                ranks[level][0].append(np.exp(entropy))
                ranks[level][1].append(1 / (rows.share**2).sum())
        channels = [self.rank[self.block == name].max() for name in blocks.tolist()]
        return EffectiveRanks(
            **{name: getattr(self, name)[starts] for name in BLOCK_COLUMNS},
            stream=self.select(starts).stream,
            channels=np.array(channels, dtype=int),
            token_rank=np.array(ranks["tokens"][0], dtype=float),
            token_participation=np.array(ranks["tokens"][1], dtype=float),
            image_rank=np.array(ranks["images"][0], dtype=float),
            image_participation=np.array(ranks["images"][1], dtype=float),
            provenance=self.provenance,
        )


@result_type("effective-ranks")
class EffectiveRanks(ScalarPerBlock):
    """Effective rank of the features; one row for each block. NaN where nothing varies."""

    value_name: ClassVar[str] = "token_rank"

    channels: np.ndarray = column("Channels", "", "number of channels, which no rank exceeds")
    token_rank: np.ndarray = column(
        "Effective rank of tokens",
        "",
        "exp(entropy) of the tokens' singular values, scaled to sum to 1",
    )
    token_participation: np.ndarray = column(
        "Participation ratio of tokens", "", "1 / sum of squared fractions of the variance"
    )
    image_rank: np.ndarray = column(
        "Effective rank of images",
        "",
        "of the means over positions; less than the number of images",
    )
    image_participation: np.ndarray = column(
        "Participation ratio of images", "", "of the means over positions"
    )

    def findings(self) -> tuple[Finding, ...]:
        """Effective rank of the first and last block, and the smallest fraction of channels."""
        rows = np.flatnonzero(np.isfinite(self.token_rank))
        if not len(rows):
            return (Finding("the tokens of no block vary, so they have no effective rank"),)
        filled = self.token_rank[rows] / self.channels[rows]
        least = rows[np.argmin(filled)]
        of = [
            f"{self.token_rank[i]:.3g} of {self.channels[i]} channels at {self.block[i]}"
            for i in (rows[0], rows[-1], least)
        ]
        text = (
            f"effective rank of tokens {of[0]}, {of[1]}; smallest fraction of {len(rows)} "
            f"blocks: {of[2]} (no interval: one number of all images)"
        )
        return (Finding(text),)

    def answers(self) -> tuple[Answer, ...]:
        """Effective rank of the last block's tokens, as a fraction of its channels."""
        rows = np.flatnonzero(np.isfinite(self.token_rank))
        if not len(rows):
            return ()
        value = float(self.token_rank[rows[-1]] / self.channels[rows[-1]])
        return (
            Answer(
                question=questions.RANK.text,
                quantity="effective rank of the last block's tokens / channels",
                value=value,
                unit="%",
            ),
        )
