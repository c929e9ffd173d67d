"""Similarity of blocks beyond CKA: mutual k-NN, Procrustes and RSA, with permutation nulls."""

from typing import ClassVar

import numpy as np

from visprism.estimates.findings import Finding
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import BlockMatrix

MEASURES = ("mutual_knn", "procrustes", "rsa")


@result_type("feature-similarity")
class FeatureSimilarity(BlockMatrix):
    """Similarities of pooled features of pairs of blocks; one row for each ordered pair."""

    value_name: ClassVar[str] = "mutual_knn"

    mutual_knn: np.ndarray = column(
        "Mutual k-NN", "", "share of the nearest images that are the same in both blocks"
    )
    mutual_knn_null: np.ndarray = column(
        "Mutual k-NN of shuffled images", "", "mean over permutations of the second block"
    )
    procrustes: np.ndarray = column(
        "Procrustes similarity", "", "nuclear norm of X' Y, centered and scaled to norm 1"
    )
    procrustes_null: np.ndarray = column(
        "Procrustes similarity of shuffled images", "", "mean over permutations"
    )
    rsa: np.ndarray = column(
        "RSA", "", "Spearman correlation of the dissimilarities of all pairs of images"
    )
    rsa_error: np.ndarray = column(
        "Standard error of RSA", "", "over images; NaN for fewer than 100 images"
    )
    rsa_null: np.ndarray = column("RSA of shuffled images", "", "mean over permutations")
    neighbors: int = scalar("Neighbors", "", "k of mutual k-NN")
    permutations: int = scalar("Permutations", "", "of the images, for the null")
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    other_model: str = scalar(
        "Other model", "", "whose block the other is; empty if it is the same model", default=""
    )

    def findings(self) -> tuple[Finding, ...]:
        """Mean of each measure over pairs of blocks, beside its null."""
        pairs = np.ones(len(self), bool) if self.other_model else self.block != self.other
        if not pairs.any():
            return ()
        of = "blocks of two models" if self.other_model else "different blocks"
        return tuple(
            Finding(
                f"{self.infos()[name].label}, mean over {int(pairs.sum())} pairs of {of}: "
                f"{np.nanmean(getattr(self, name)[pairs]):.3g}; with shuffled images "
                f"{np.nanmean(getattr(self, f'{name}_null')[pairs]):.3g}"
            )
            for name in MEASURES
            if np.isfinite(getattr(self, name)[pairs]).any()
        )
