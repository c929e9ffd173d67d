"""Readouts of blocks: k-NN, ridge probe and logit lens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.block_readout import readouts
from visprism.measure.features.logit_lens import lens_or_reason
from visprism.passes.pooled import pooled_features
from visprism.results.readout import Readouts
from visprism.table.result import Result

_HEAD = 3e-4  # seconds that the probes of a block take for an image, on two cores


@ANALYSES.register
@dataclass(frozen=True)
class Readout(Analysis):
    """Accuracy of k-NN, a ridge probe and the logit lens on the features of each block."""

    name = "readout"
    needs = Needs.FEATURES
    images = Sizes(fewest=50, full=5000, work=0.8)
    source = "Caron et al. (2021); Alain & Bengio (2017); nostalgebraist (2020)"
    sections = (
        Section(
            Readouts,
            "Readouts of blocks",
            "Each line is a readout: k nearest neighbors and a ridge probe on the pooled "
            "features of a block, and the model's own head on its tokens (logit lens). Where "
            "the probe is accurate and the lens is not, the classes are linearly separable in "
            "directions that the head does not read.",
        ),
    )

    pooling: Literal["mean", "class", "both"] = option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    neighbors: int = option(20, "number of neighbors of k-NN", minimum=1)
    temperature: float = option(0.07, "temperature of the votes of neighbors", above=0)
    penalty: float = option(
        0.01, "ridge penalty as a multiple of the mean feature variance", above=0
    )
    folds: int = option(5, "number of folds if the data has no training split", minimum=2)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Pool the features of test and training images, and fit the readouts."""
        anatomy = subject.anatomy
        test = pooled_features(anatomy, subject.batches(), pooling=self.pooling, run=run)
        train = (
            None
            if subject.training_images is subject.images
            else pooled_features(
                anatomy, subject.training_batches(), pooling=self.pooling, run=run
            )
        )
        refusal = subject.missing(Needs.TARGETS)
        lens = (
            f"no logit lens: {refusal}"
            if refusal
            else lens_or_reason(anatomy, subject.batches(), run)
        )
        return readouts(
            anatomy,
            test,
            train,
            lens,
            pooling=self.pooling,
            neighbors=self.neighbors,
            temperature=self.temperature,
            penalty=self.penalty,
            number_of_folds=self.folds,
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """A pass for test images, for separate training images and for the lens, and probes."""
        separate = subject.training_images is not subject.images
        lens = subject.missing(Needs.TARGETS) is None
        return Cost(
            per_image=1.0 + separate + lens, seconds_per_image=_HEAD * len(subject.anatomy)
        )

    def inapplicable(self, subject: Subject) -> str | None:
        """Without labels, which need not be the classes of the model, or with few images."""
        reason = super().inapplicable(subject)
        if reason is None and subject.images.targets is None:
            return f"there are no labels in {subject.images.name}"
        others = min(len(subject.training_images), subject.limit or math.inf)
        if subject.training_images is subject.images:
            reason = reason or subject.too_few_images(self.folds)
            others -= math.ceil(others / self.folds)
        if reason is None and others < self.neighbors:
            return f"k-NN of {self.neighbors} neighbors has only {others} images to choose from"
        return reason
