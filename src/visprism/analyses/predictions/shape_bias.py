"""Shape bias on images with conflicting cues."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.subject import Subject
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.analyses.predictions.categories import classes_of
from visprism.measure.outputs.shape_bias import by_category, shape_bias, shape_bias_by_image
from visprism.results.shape_bias import ShapeBias as ShapeBiasResult
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class ShapeBias(Analysis):
    """Decisions for shape or texture on images whose cues conflict."""

    name = "shape-bias"
    group = "robustness"
    needs = Needs.TEXTURES | Needs.OUTPUTS
    share = 0.0
    source = "Geirhos et al. (2019)"
    sections = (
        Section(
            ShapeBiasResult,
            "Shape bias",
            "Each point is a category: 1 if all decisions for shape or texture are for the "
            "shape, 0 if all are for the texture, with its 95% interval. The diamond is the "
            "mean over all images.",
        ),
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Compare the decisions with shapes and textures."""
        names, textures = subject.images.class_names, subject.images.textures
        assert textures is not None  # see `needs`
        predictions = subject.predictions(run)
        classes = classes_of(names, predictions.num_classes)
        decisions = by_category(predictions, classes)
        textures = textures[: len(predictions)]
        return (
            shape_bias(decisions, textures, names),
            shape_bias_by_image(decisions, textures),
        )

    def cost(self, subject: Subject) -> Cost:
        """One pass."""
        return Cost(per_image=1.0)

    def inapplicable(self, subject: Subject) -> str | None:
        """Without textures, or with classes that do not belong to the categories."""
        reason = super().inapplicable(subject)
        if reason is not None:
            return reason
        try:
            classes_of(subject.images.class_names, subject.num_classes)
        except InputError as error:
            return str(error)
        return None
