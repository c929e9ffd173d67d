"""PCA of patch features: three components of each patch, as colors."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text
from visprism.table.result import column as quantity
from visprism.table.result import result_type, scalar
from visprism.table.shapes import PerBlock, Valued


@result_type("patch-components")
class PatchComponents(Valued, PerBlock):
    """Scores of three principal components; one row for each block, image and patch.

    NaN for patches of the background, where there is one.
    """

    value_name: ClassVar[str] = "first"

    image: np.ndarray = quantity(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    row: np.ndarray = quantity("Row", "", "of the grid, from 0 at the top")
    column: np.ndarray = quantity("Column", "", "of the grid, from 0 at the left")
    first: np.ndarray = quantity(
        "First component", "", "score, 0 at the 1% and 1 at the 99% percentile of all images"
    )
    second: np.ndarray = quantity("Second component", "", "score, scaled as the first")
    third: np.ndarray = quantity("Third component", "", "score, scaled as the first")
    explained: np.ndarray = quantity(
        "Explained variance", "", "fraction that the three components of the block hold"
    )
    background_threshold: float = scalar(
        "Background threshold",
        "",
        "score of the first component up to which a patch is background; NaN: none is",
    )

    def pictures(self) -> dict[tuple[str, int], Float[np.ndarray, "h w 3"]]:
        """Red, green and blue from the three components, by block and image."""
        colors = np.stack([self.first, self.second, self.third], axis=1)
        keys = list(dict.fromkeys(zip(self.block.tolist(), self.image.tolist(), strict=True)))
        colored = {}
        for block, image in keys:
            rows = (self.block == block) & (self.image == image)
            shape = self.row[rows].max() + 1, self.column[rows].max() + 1
            picture = np.full((*shape, 3), np.nan)
            picture[self.row[rows], self.column[rows]] = colors[rows]
            colored[block, image] = picture
        return colored

    def findings(self) -> tuple[Finding, ...]:
        """Explained variance of the first and the last block."""
        starts = np.flatnonzero(self.first_rows())
        texts = [f"{self.explained[i]:.0%} at {self.block[i]}" for i in starts[[0, -1]]]
        images = images_text(len(np.unique(self.image)), self.provenance.split)
        return (
            Finding(
                "share of variance that three principal components of the patches explain, "
                f"over {images}: {', '.join(dict.fromkeys(texts))}"
            ),
        )
