"""Class separability: neural collapse, RankMe and alpha-ReQ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.class_separability import class_separability, classifier_of
from visprism.passes.pooled import pooled_features
from visprism.results.class_separability import ClassSeparability as ClassSeparabilityResult
from visprism.results.class_separability import FeatureRanks
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class ClassSeparability(Analysis):
    """Neural collapse (NC1 to NC4), RankMe and alpha-ReQ of the features of each block."""

    name = "class-separability"
    needs = Needs.FEATURES | Needs.TRAINING_IMAGES
    images = Sizes(fewest=50, full=5000, work=0.5)
    source = "Papyan et al. (2020); Garrido et al. (2023); Agrawal et al. (2022)"
    sections = (
        Section(
            ClassSeparabilityResult,
            "Class separability",
            "Each point is a block: the variation of the features within classes over that "
            "between class means (NC1). All four numbers of neural collapse are 0 when the "
            "features of a class are one point and the class means a simplex.",
            figures={
                "": {"scale": "log"},
                "angles": {"quantity": "maximal_angle"},
                "disagreement": {"quantity": "disagreement"},
            },
        ),
        Section(
            FeatureRanks,
            "RankMe and alpha-ReQ",
            "Each point is a block: the effective rank of its features over images (RankMe), "
            "with and without their mean, and the decay exponent of their spectrum (alpha).",
            figures={"": {}, "alpha": {"quantity": "alpha"}},
        ),
    )

    pooling: Literal["mean", "class", "both"] = option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Pool the features of the training images."""
        head = classifier_of(subject.model, subject.num_classes)
        pooled = pooled_features(
            subject.anatomy,
            subject.training_batches(),
            pooling=self.pooling,
            inputs_of=head,
            run=run,
        )
        return class_separability(
            subject.anatomy,
            pooled,
            pooling=self.pooling,
            classifier=head if subject.missing(Needs.TARGETS) is None else None,
            predicts_targets=subject.missing(Needs.TARGETS) is None,
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """One pass."""
        return Cost(per_image=1.2)

    def inapplicable(self, subject: Subject) -> str | None:
        """Without labels, which need not be the classes of the model."""
        reason = super().inapplicable(subject)
        if reason is None and subject.training_images.targets is None:
            return f"there are no labels in {subject.training_images.name}"
        return reason
