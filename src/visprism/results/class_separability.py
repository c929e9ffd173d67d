"""Class separability: neural collapse, RankMe and alpha-ReQ of the features of each block."""

from typing import ClassVar

import numpy as np

from visprism.results import questions
from visprism.results.answers import Answer
from visprism.results.base import column, result_type, scalar
from visprism.results.findings import Finding
from visprism.results.shapes import ScalarPerBlock
from visprism.results.text import images_text


@result_type("class-separability")
class ClassSeparability(ScalarPerBlock):
    """Neural collapse of pooled features; one row for each block. All are 0 in the collapse."""

    value_name: ClassVar[str] = "nc1"

    nc1: np.ndarray = column(
        "NC1: variation within classes",
        "",
        "tr(W B^+) / k: covariance within classes over that of the class means",
    )
    equinorm: np.ndarray = column(
        "NC2: equal norms", "", "coefficient of variation of the norms of centered class means"
    )
    equiangularity: np.ndarray = column(
        "NC2: equal angles", "", "standard deviation of the cosines of centered class means"
    )
    maximal_angle: np.ndarray = column(
        "NC2: maximal angles", "", "mean of |cosine + 1 / (k - 1)| over pairs of classes"
    )
    disagreement: np.ndarray = column(
        "NC4: nearest mean disagrees",
        "",
        "fraction of images whose nearest class mean is not the class the model predicts; NaN "
        "for a model without these classes",
    )
    accuracy: np.ndarray = column(
        "Accuracy of the nearest class mean", "", "on the images that the means are taken over"
    )
    self_duality: float = scalar(
        "NC3: self-duality",
        "",
        "|W / |W| - M / |M||^2 of the head and the means of its input; NaN without a head",
    )
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    classes: int = scalar("Classes", "", "number of classes of the images, k")

    def findings(self) -> tuple[Finding, ...]:
        """NC1 by block, and all four for the last block."""
        head = "" if np.isnan(self.self_duality) else f", NC3 {self.self_duality:.3g}"
        within = "" if np.isnan(self.nc1[-1]) else f"NC1 {self.nc1[-1]:.3g}, "
        means = (
            "two classes have no NC2"
            if np.isnan(self.equinorm[-1])
            else f"NC2 equal norms {self.equinorm[-1]:.3g} and maximal angles "
            f"{self.maximal_angle[-1]:.3g}"
        )
        images = images_text(self.provenance.images, self.provenance.split)
        decided = self.disagreement[-1]
        agreement = "" if np.isnan(decided) else f", NC4 {decided:.1%}"
        return (
            *super().findings(),
            Finding(
                f"{self.block[-1]}: {within}{means}{head}{agreement} ({images} of "
                f"{self.classes} classes, {self.pooling} features; all are 0 in neural "
                "collapse)"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """NC1 of the last block."""
        return (
            Answer(
                question=questions.COLLAPSE.text,
                quantity="NC1, variation within over between classes, last block",
                value=float(self.nc1[-1]),
            ),
        )


@result_type("feature-ranks")
class FeatureRanks(ScalarPerBlock):
    """RankMe and alpha-ReQ of pooled features, one vector for each image; one row per block."""

    value_name: ClassVar[str] = "rankme"

    rankme: np.ndarray = column(
        "RankMe", "", "exp(entropy) of the singular values of the features, not centered"
    )
    rankme_centered: np.ndarray = column(
        "RankMe, centered", "", "the same after the mean over images was subtracted"
    )
    alpha: np.ndarray = column(
        "alpha-ReQ",
        "",
        "exponent of the decay of the covariance's eigenvalues with their rank, 1 to 50",
    )
    dimension: np.ndarray = column("Dimension", "", "of the features, which no rank exceeds")
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
