"""Accuracy with changed pixels: the base of analyses that evaluate the same images again."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jaxtyping import Int64
from torch import Tensor

from visprism import kit
from visprism.estimates.text import points_text
from visprism.passes.perturbed import Paired, Pixels, PixelSpace, evaluate_perturbed


class PerturbedAccuracy(kit.Analysis):
    """Accuracy and NLL of each image without and with each of several changes of its pixels.

    A subclass declares the `conditions`, the `change` of the pixels under one of them, and the
    `results` of the outcomes by image and condition. Costs one forward pass for each condition;
    the clean predictions are shared by all analyses of a study.
    """

    images: ClassVar[kit.Sizes] = kit.Sizes(fewest=16, quick=64, standard=512)
    needs: ClassVar[kit.Needs] = kit.Needs.OUTCOMES | kit.Needs.PIXELS | kit.Needs.OUTPUTS
    passes: ClassVar[float] = 1.2  # forward passes that a condition costs, with its change

    @abstractmethod
    def conditions(self, size: tuple[int, int]) -> Sequence[Any]:
        """The conditions for images of this height and width."""

    @abstractmethod
    def change(
        self, pixels: Pixels, condition: Any, indices: range, seed: int, space: PixelSpace
    ) -> Pixels:
        """Changed pixels in 0 ... 1, not clipped."""

    @abstractmethod
    def results(
        self, outcomes: Paired, conditions: Sequence[Any], subject: kit.Subject
    ) -> Sequence[kit.Result]:
        """The results, the main one first."""

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Evaluate the model under each condition."""
        way, (height, width) = subject.known_preprocessing, subject.anatomy.image_shape[-2:]
        conditions, space = self.conditions((height, width)), PixelSpace(way.mean, way.std)

        def perturb(
            number: int, pixels: Tensor, _targets: Int64[Tensor, " b"], indices: range
        ) -> Tensor:
            return self.change(pixels, conditions[number], indices, run.seed, space)

        outcomes, origin = evaluate_perturbed(
            subject.model,
            subject.output_batches(run),
            space,
            len(conditions),
            perturb,
            clean=subject.predictions(run),
            run=run,
        )
        return [
            result.measured(origin) for result in self.results(outcomes, conditions, subject)
        ]

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One forward pass for each condition, and one without any change."""
        height, width = subject.anatomy.image_shape[-2:]
        return kit.Cost(per_image=1 + self.passes * len(self.conditions((height, width))))


def drops_text(
    change: str,
    drop: kit.Estimated,
    clean: float,
    cases: str,
    images: str,
    name: Callable[[int], str],
) -> str:
    """How many accuracy drops are significant, and the largest, named as a maximum.

    Args:
        change: what lowers the accuracy.
        drop: of each case.
        clean: accuracy without a change.
        cases: what the drops are of, in the plural.
        images: that were measured.
        name: of the case of an index.
    """
    significant, worst = int((drop.low > 0).sum()), int(drop.argmax())
    text = (
        f"{change}: accuracy drops significantly from {clean:.1%} on these images in "
        f"{significant} of {len(drop)} {cases} ({images})"
    )
    if significant or len(drop) == 1:
        text += f"; largest drop of {len(drop)}: {name(worst)}, {points_text(drop[worst])}"
    return text
