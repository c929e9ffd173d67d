"""Quantization sensitivity of blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.anatomy import weights_of
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import Run, TimeBudgetError
from visprism.loss.density import traces_by_part
from visprism.measure.outputs.quantization import BITS, quantization_sensitivity
from visprism.results.quantization import QuantizationSensitivity
from visprism.table.result import Result

_TRACE_IMAGES = 32  # training images of the Hessian traces, at most


@ANALYSES.register
@dataclass(frozen=True)
class Quantization(Analysis):
    """NLL rise after rounding one block to a few bits, beside its Hessian trace."""

    name = "quantization"
    group = "robustness"
    needs = Needs.TARGETS
    images = Sizes(fewest=16, quick=64, standard=512)
    default = False  # as many passes as an ablation for each number of bits
    source = "Nagel et al. (2021), sec. 2 and 3.5; Dong et al. (2020), HAWQ-V2"
    sections = (
        Section(
            QuantizationSensitivity,
            "Quantization sensitivity",
            "Each line is a number of bits: the rise of the NLL when the weights of one block "
            "are rounded to it, with its 95% interval over images. Rounding is symmetric for "
            "each output channel and to nearest; activations keep their precision. The second "
            "figure is the rise that the Hessian trace of the block's weights predicts for "
            "rounding errors without correlation, with its interval over random vectors.",
            figures={"": {}, "-predicted": {"quantity": "predicted_rise"}},
        ),
    )

    bits: tuple[int, ...] = option(
        BITS, "numbers of bits of a weight", minimum=2, maximum=16, quick=(min(BITS),)
    )
    trace_probes: int = option(
        5, "number of random vectors of each Hessian trace (0: no traces)", minimum=0, quick=3
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Quantize each block in turn, and estimate the Hessian traces."""
        traces, reason = self._traces(subject, run)
        return (
            quantization_sensitivity(
                subject.anatomy,
                subject.batches(),
                bits=self.bits,
                traces=traces,
                without_traces=reason,
                run=run,
            ),
        )

    def _traces(self, subject: Subject, run: Run) -> tuple[dict[str, np.ndarray], str]:
        """Hessian trace of the weights of each block; or none, and why."""
        if not self.trace_probes:
            return {}, ""
        parts = {
            b.name: names for b in subject.anatomy if (names := weights_of(subject.anatomy, b))
        }
        try:
            traces = traces_by_part(
                subject.model,
                subject.limited(self._trace_images(subject)).training_batches(),
                parts,
                probes=self.trace_probes,
                run=subject.named(run, training=True),
            )
        except TimeBudgetError:
            raise
        except (InputError, RuntimeError) as error:  # of autograd: the model has no derivatives
            return {}, str(error).split("\n", maxsplit=1)[0]
        return traces, ""

    def _trace_images(self, subject: Subject) -> int:
        return min(_TRACE_IMAGES, subject.num_images, len(subject.training_images))

    def cost(self, subject: Subject) -> Cost:
        """Half a forward pass for each block and number of bits, and the Hessian products."""
        blocks = len(subject.anatomy)
        return Cost(
            per_image=1.5 + 0.55 * len(self.bits) * blocks,
            fixed=6.0 * self.trace_probes * self._trace_images(subject) * blocks,
        )
