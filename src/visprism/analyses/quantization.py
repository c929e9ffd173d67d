"""Quantization sensitivity of blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs.quantization import BITS, quantization_sensitivity
from visprism.results.base import Result
from visprism.results.quantization import QuantizationSensitivity


@ANALYSES.register
@dataclass(frozen=True)
class Quantization(Analysis):
    """NLL rise and accuracy drop with the weights of one block at a few bits."""

    name = "quantization"
    group = "robustness"
    needs = Needs.TARGETS
    min_images = 16
    max_images = 512
    share = 0.5
    default = False  # as many passes as an ablation for each number of bits
    source = "Nagel et al. (2021), sec. 2 and 3.5"
    sections = (
        Section(
            QuantizationSensitivity,
            "Quantization sensitivity",
            "Each line is a number of bits: the rise of the NLL when the weights of one block "
            "are rounded to it, with its 95% interval over images. Rounding is symmetric for "
            "each output channel and to nearest; activations keep their precision.",
        ),
    )

    bits: tuple[int, ...] = option(BITS, "numbers of bits of a weight", minimum=2, maximum=16)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Quantize each block in turn."""
        return (
            quantization_sensitivity(
                subject.anatomy, subject.batches(), bits=self.bits, run=run
            ),
        )

    def cost(self, subject: Subject) -> Cost:
        """Half a forward pass for each block and number of bits."""
        return Cost(per_image=1.5 + 0.55 * len(self.bits) * len(subject.anatomy))

    def coarser(self) -> "Quantization | None":
        """The smallest number of bits."""
        cheaper = replace(self, bits=(min(self.bits),)) if self.bits else self
        return cheaper if cheaper != self else None
