"""Token similarity: mean cosine between the tokens of an image, by block."""

from typing import ClassVar

import numpy as np

from visprism.results import questions
from visprism.results.answers import Answer
from visprism.results.base import column, result_type
from visprism.results.shapes import SeriesPerBlock

# The last two for blocks that have tokens off the grid.
SERIES = ("grid", "grid, mean removed", "all tokens", "all tokens, mean removed")
LAST_BLOCK = "cosine similarity of grid tokens, last block"


@result_type("token-similarity")
class TokenSimilarity(SeriesPerBlock):
    """Mean cosine between tokens of an image; a row for each block and choice of tokens."""

    series_name: ClassVar[str] = "tokens"
    value_name: ClassVar[str] = "cosine"

    tokens: np.ndarray = column(
        "Tokens",
        "",
        "'grid', or 'all tokens' with class token and registers; 'mean removed' where the mean "
        "token of the image was subtracted",
    )
    cosine: np.ndarray = column(
        "Cosine similarity of tokens", "", "mean over pairs of an image, then over images"
    )
    cosine_error: np.ndarray = column("Standard error of the cosine", "", "over images")

    def answers(self) -> tuple[Answer, ...]:
        """The similarity of grid tokens in the last block."""
        rows = self.series().get(SERIES[0], np.zeros(0, dtype=int))
        if not len(rows) or not np.isfinite(self.cosine[rows[-1]]):
            return ()
        value, half = float(self.cosine[rows[-1]]), float(self.margins[rows[-1]])
        return (
            Answer(
                question=questions.TOKEN_SIMILARITY.text,
                quantity=LAST_BLOCK,
                value=value,
                low=value - half,
                high=value + half,
                over="images",
            ),
        )
