"""Out-of-distribution scores against a second data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.images.images import ordered
from visprism.images.open_data import load_data
from visprism.measure.features.out_of_distribution import out_of_distribution
from visprism.passes.pooled import halves, pooled_features
from visprism.results.out_of_distribution import OutOfDistribution as OutOfDistributionResult
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class OutOfDistribution(Analysis):
    """AUROC of out-of-distribution scores of logits and of each block against other data."""

    name = "out-of-distribution"
    group = "robustness"
    needs = Needs.FEATURES | Needs.PIXELS
    images = Sizes(fewest=100, full=5000)
    default = False  # which data is of another distribution, only the user can say
    source = (
        "Hendrycks & Gimpel (2017); Liu et al. (2020); Hendrycks et al. (2022); Sun et al. "
        "(2022); Lee et al. (2018)"
    )
    sections = (
        Section(
            OutOfDistributionResult,
            "Out-of-distribution scores",
            "Each line is a score: the probability that an image of the data scores above one "
            "of the other data, with its 95% interval. 0.5 is chance level; below it, images "
            "of the other data score higher. Scores of logits are drawn at the depth of the "
            "head.",
        ),
    )

    ood_data: str | None = option(None, "out-of-distribution images, in the form of DATA")
    ood_split: str | None = option(
        None, "split of ood_data; none: test if it has one, else all images"
    )
    pooling: Literal["mean", "class", "both"] = option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    neighbors: int = option(
        50, "number k of neighbors: the score is the distance to the k-th nearest", minimum=1
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Pool the features of training images, test images and the other images."""
        assert self.ood_data is not None  # see `inapplicable`
        read = load_data(
            self.ood_data, split=self.ood_split, limit=subject.num_images, seed=run.seed
        )
        other = ordered(read, seed=run.seed).batches(
            subject.known_preprocessing, batch_size=subject.batch_size
        )
        anatomy, pooling = subject.anatomy, self.pooling
        test = pooled_features(anatomy, subject.batches(), pooling=pooling, run=run)
        if subject.training_images is subject.images:
            fitted, test = halves(test)
            fitted_on = "images of the data, the other half of which is tested"
        else:
            training = subject.training_batches()
            fitted = pooled_features(anatomy, training, pooling=pooling, run=run)
            fitted_on = "training images"
        return (
            out_of_distribution(
                anatomy,
                fitted,
                test,
                pooled_features(anatomy, other, pooling=pooling, run=run),
                pooling=pooling,
                neighbors=self.neighbors,
                with_logits=subject.missing(Needs.TARGETS) is None,
                fitted_on=fitted_on,
                other_data=self.ood_data,
                run=run,
            ),
        )

    def cost(self, subject: Subject) -> Cost:
        """A pass over test images, training images and the other images."""
        return Cost(per_image=3.3)

    def inapplicable(self, subject: Subject) -> str | None:
        """Without other data."""
        if self.ood_data is None:
            return "no images of another distribution are named; set the option ood_data"
        return super().inapplicable(subject)
