"""Class separability: neural collapse, RankMe and alpha-ReQ of the features of each block."""

from typing import ClassVar

import numpy as np

from visprism.core.statistics import log_interval, t_quantile
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import ScalarPerBlock


@result_type("class-separability")
class ClassSeparability(ScalarPerBlock):
    """Neural collapse of pooled features; one row for each block. All are 0 in the collapse.

    Standard errors are over samples of as many images of each class. NC4 has none: where class
    means are close, their noise changes many decisions together.
    """

    value_name: ClassVar[str] = "nc1"

    nc1: np.ndarray = column(
        "NC1: variation within classes",
        "",
        "tr(W B^+) / k: covariance within classes over that of the class means",
    )
    nc1_error: np.ndarray = column("Standard error of NC1", "", "over images")
    equinorm: np.ndarray = column(
        "NC2: equal norms", "", "coefficient of variation of the norms of centered class means"
    )
    equinorm_error: np.ndarray = column("Standard error of equal norms", "", "over images")
    equiangularity: np.ndarray = column(
        "NC2: equal angles", "", "standard deviation of the cosines of centered class means"
    )
    equiangularity_error: np.ndarray = column(
        "Standard error of equal angles", "", "over images"
    )
    maximal_angle: np.ndarray = column(
        "NC2: maximal angles", "", "mean of |cosine + 1 / (k - 1)| over pairs of classes"
    )
    maximal_angle_error: np.ndarray = column(
        "Standard error of maximal angles", "", "over images"
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
    self_duality_error: float = scalar(
        "Standard error of NC3", "", "over images", default=np.nan
    )
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    classes: int = scalar("Classes", "", "number of classes of the images, k")

    @property
    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 95% intervals of NC1, which is positive: those of its logarithm."""
        return log_interval(self.values, self.margins)

    def findings(self) -> tuple[Finding, ...]:
        """NC1 by block, and all four for the last block."""
        margin = t_quantile(self.units) * self.self_duality_error
        duality = (self.self_duality, self.self_duality - margin, self.self_duality + margin)
        head = "" if np.isnan(self.self_duality) else f", NC3 {interval_text(*duality)}"
        within = "" if np.isnan(self.nc1[-1]) else f"NC1 {self._last('nc1')}, "
        means = (
            "two classes have no NC2"
            if np.isnan(self.equinorm[-1])
            else f"NC2 equal norms {self._last('equinorm')} and maximal angles "
            f"{self._last('maximal_angle')}"
        )
        images = images_text(self.provenance.images, self.provenance.split)
        decided = self.disagreement[-1]
        agreement = "" if np.isnan(decided) else f", NC4 {decided:.1%} (no interval)"
        return (
            *super().findings(),
            Finding(
                f"{self.block[-1]}: {within}{means}{head}{agreement} ({images} of "
                f"{self.classes} classes, {self.pooling} features; all are 0 in neural "
                "collapse)"
            ),
        )

    def _last(self, name: str) -> str:
        """A column at the last block, with its interval."""
        low, high = self.intervals_of(name)
        return interval_text(getattr(self, name)[-1], low[-1], high[-1])

    def answers(self) -> tuple[Answer, ...]:
        """NC1 of the last block."""
        low, high = self.intervals
        return (
            Answer(
                question=questions.COLLAPSE.text,
                quantity="NC1, variation within over between classes, last block",
                value=float(self.nc1[-1]),
                low=float(low[-1]),
                high=float(high[-1]),
                over="images",
            ),
        )


@result_type("feature-ranks")
class FeatureRanks(ScalarPerBlock):
    """RankMe and alpha-ReQ of pooled features, one vector for each image; one row per block.

    Standard errors are over samples of as many images; more images have other values.
    """

    value_name: ClassVar[str] = "rankme"

    rankme: np.ndarray = column(
        "RankMe", "", "exp(entropy) of the singular values of the features, not centered"
    )
    rankme_error: np.ndarray = column(
        "Standard error of RankMe", "", "over images; NaN for fewer than 1.5 for each feature"
    )
    rankme_centered: np.ndarray = column(
        "RankMe, centered", "", "the same after the mean over images was subtracted"
    )
    rankme_centered_error: np.ndarray = column(
        "Standard error of RankMe, centered",
        "",
        "over images; NaN for fewer than 1.5 for each feature",
    )
    alpha: np.ndarray = column(
        "alpha-ReQ",
        "",
        "exponent of the decay of the covariance's eigenvalues with their rank, 1 to 50",
    )
    alpha_error: np.ndarray = column(
        "Standard error of alpha-ReQ", "", "over images; NaN for fewer than 100 images"
    )
    dimension: np.ndarray = column("Dimension", "", "of the features, which no rank exceeds")
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
