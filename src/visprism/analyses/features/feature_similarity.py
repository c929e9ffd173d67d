"""Similarity of blocks beyond CKA."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Measured, Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.feature_similarity import feature_similarity
from visprism.passes.pooled import pooled_features
from visprism.results.feature_similarity import FeatureSimilarity as FeatureSimilarityResult
from visprism.table.result import Result

_SECONDS = 1e-4  # for each image, pair of blocks and permutation: singular values


@ANALYSES.register
@dataclass(frozen=True)
class FeatureSimilarity(Analysis):
    """Mutual k-NN, Procrustes and RSA similarity of blocks, beside permutation nulls."""

    name = "feature-similarity"
    needs = Needs.FEATURES
    images = Sizes(fewest=32, standard=512, work=0.5)
    default = False  # `cka` is the similarity of a study; this one is quadratic in blocks
    source = "Huh et al. (2024); Williams et al. (2021); Kriegeskorte et al. (2008)"
    sections = (
        Section(
            FeatureSimilarityResult,
            "Similarity of features",
            "Each cell is a pair of blocks. Mutual k-NN: the fraction of an image's nearest "
            "neighbors that both blocks share. Procrustes and RSA: similarity of the shapes "
            "and of all distances. Compare with the null of shuffled images in the table.",
            figures={
                "": {},
                "procrustes": {"quantity": "procrustes"},
                "rsa": {"quantity": "rsa"},
            },
        ),
    )

    pooling: Literal["mean", "class", "both"] = option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    neighbors: int = option(10, "number of neighbors of mutual k-NN", minimum=1)
    permutations: int = option(5, "number of permutations of the null", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Pool the features once and compare all pairs of blocks."""
        pooled = pooled_features(
            subject.anatomy, subject.batches(), pooling=self.pooling, run=run
        )
        return (
            feature_similarity(
                subject.anatomy,
                pooled,
                pooled,
                pooling=self.pooling,
                neighbors=self.neighbors,
                permutations=self.permutations,
                run=run,
            ),
        )

    def compare(self, first: Measured, second: Measured, run: Run) -> Sequence[Result]:
        """Similarity of the blocks of two models on the same images."""
        a, b = (
            pooled_features(s.anatomy, s.batches(), pooling=self.pooling, run=run)
            for s in (first.subject, second.subject)
        )
        return (
            feature_similarity(
                first.subject.anatomy,
                a,
                b,
                pooling=self.pooling,
                neighbors=self.neighbors,
                permutations=self.permutations,
                other_model=second.subject.name,
                run=replace(run, provenance=first.subject.named(run).provenance),
            ),
        )

    def cost(self, subject: Subject) -> Cost:
        """A pass, and singular values for each pair of blocks and permutation."""
        pairs = len(subject.anatomy) ** 2
        seconds = _SECONDS * pairs * (1 + self.permutations)
        return Cost(per_image=1.2, seconds_per_image=seconds)

    def comparison_cost(self, subject: Subject) -> Cost:
        """That of one model, whose pairs are shared with the other."""
        cost = self.cost(subject)
        return replace(cost, seconds_per_image=cost.seconds_per_image / 2)
