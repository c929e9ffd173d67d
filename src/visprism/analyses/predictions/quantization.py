"""Quantization sensitivity: accuracy and NLL with the weights of one block rounded to few bits.

Weights of convolutions and linear layers are rounded to a symmetric grid for each output
channel; biases, norms and activations are not. With s = max |w| / (2^(bits - 1) - 1) the
weights are Q(w) = s round(w / s). Differences are paired by image.
"""

from collections.abc import Sequence
from math import nan
from typing import Any, ClassVar

import numpy as np

from visprism import kit
from visprism.anatomy.run.ablations import quantization, quantized, weights_of
from visprism.estimates.estimated import paired_proportion
from visprism.passes.ablated import ablated_outcomes


@kit.result("quantization-sensitivity", "Quantization sensitivity")
class QuantizationSensitivity(kit.SeriesPerBlock):
    """Accuracy and NLL with the weights of one block quantized; a row for each block and bits.

    Each line is a number of bits: the rise of the NLL when the weights of one block are
    rounded to it, with its 95% interval over images. Rounding is symmetric for each output
    channel and to nearest; activations keep their precision.

    Intervals of drops are Bonett and Price's.
    """

    value_name: ClassVar[str] = "nll_rise"
    series_name: ClassVar[str] = "bits"
    row_names: ClassVar[tuple[str, ...]] = ("bits",)

    bits: kit.Texts = kit.column("Bits", "", "of the weights of the block: '8 bits', ...")
    nll_rise: kit.Estimated = kit.estimate(
        "NLL rise", "nats", "NLL with the quantized block minus the model's NLL"
    )
    accuracy: np.ndarray = kit.column("Accuracy", "", "with the quantized block")
    drop: kit.Estimated = kit.estimate(
        "Accuracy drop",
        kit.POINTS,
        "accuracy of the model minus that with the quantized block",
        asks="How much does accuracy drop when one block is quantized?",
        comparison="none",  # selected maxima of different blocks
    )
    weight_error: np.ndarray = kit.column(
        "Relative weight error",
        "",
        "squared norm of the rounding over squared norm of the weights",
    )
    baseline_accuracy: float = kit.scalar("Baseline accuracy", "", "accuracy of the model")
    baseline_nll: float = kit.scalar("Baseline NLL", "nats", "NLL of the model")

    def answered(self, name: str) -> np.ndarray:
        """The largest accuracy drop at each number of bits, a selected maximum."""
        drop = np.asarray(self.drop)
        return np.array([rows[drop[rows].argmax()] for rows in self.series().values()], int)

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The selection."""
        bits = str(self.bits[row])
        return {
            "quantity": f"largest accuracy drop, one block at {bits}",
            "measure": "",
            "selected": len(self.series()[bits]),
        }


@kit.analysis
class Quantization(kit.Analysis):
    """NLL rise after rounding one block to a few bits."""

    name = "quantization"
    group = "robustness"
    needs = kit.Needs.OUTCOMES
    images = kit.Sizes(fewest=16, quick=64, standard=512)
    default = False  # as many passes as an ablation for each number of bits
    source = "Nagel et al. (2021), sec. 2 and 3.5"
    gives = QuantizationSensitivity

    bits: tuple[int, ...] = kit.option(
        (8, 6, 4), "numbers of bits of a weight", minimum=2, maximum=16, quick=(4,)
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Quantize each block in turn."""
        anatomy = subject.anatomy
        blocks = [block for block in anatomy if weights_of(anatomy, block)]
        if not blocks:
            raise kit.InputError(f"{type(anatomy.model).__name__} has no block with weights")
        rows = [(number, block) for number in self.bits for block in blocks]
        changes = np.array([_change(anatomy, block, number) for number, block in rows])
        rounding, squares = changes.T
        with np.errstate(invalid="ignore"):
            weight_error = np.where(squares > 0, rounding / squares, nan)
        outcomes, _, origin = ablated_outcomes(
            anatomy,
            subject.batches(),
            [quantization(anatomy, block, number) for number, block in rows],
            label="quantization",
            run=run,
        )
        return (
            QuantizationSensitivity(
                **kit.block_columns([block for _, block in rows]),
                bits=np.array([f"{number} bits" for number, _ in rows]),
                accuracy=outcomes.correct[:, 1:].mean(0),
                drop=kit.mean(outcomes.drops, paired_proportion),
                nll_rise=kit.mean(outcomes.rises),
                weight_error=weight_error,
                baseline_accuracy=outcomes.accuracy,
                baseline_nll=outcomes.nll,
                provenance=origin,
            ),
        )

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Half a forward pass for each block and number of bits."""
        return kit.Cost(per_image=1.5 + 0.55 * len(self.bits) * len(subject.anatomy))


def _change(anatomy: kit.Anatomy, block: kit.Block, bits: int) -> tuple[float, float]:
    """Squared norms of the weights' change and of the weights."""
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    weights = [parameters[n].detach().cpu().double() for n in weights_of(anatomy, block)]
    change = sum(float((quantized(w, bits) - w).square().sum()) for w in weights)
    return change, sum(float(w.square().sum()) for w in weights)
