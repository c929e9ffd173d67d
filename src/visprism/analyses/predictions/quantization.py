"""Quantization sensitivity: accuracy and NLL with the weights of one block rounded to few bits.

Weights of convolutions and linear layers are rounded to a symmetric grid for each output
channel; biases, norms and activations are not. With s = max |w| / (2^(bits - 1) - 1) the
weights are Q(w) = s round(w / s). Differences are paired by image.

With the trace T of the Hessian of the mean loss for the p weights of a block, the predicted
rise is T / (2 p) |Q(w) - w|^2: the second-order term, if the rounding errors of different
weights have no correlation. HAWQ-V2 ranks layers by it.
"""

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any, ClassVar

import numpy as np

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.anatomy.blocks.anatomy import Anatomy, Block
from visprism.anatomy.run.ablations import quantization, quantized, weights_of
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import Run, TimeBudgetError
from visprism.core.statistics import rank_correlation
from visprism.estimates import questions
from visprism.estimates.answers import POINTS
from visprism.estimates.estimated import Estimated, mean, paired_proportion
from visprism.estimates.findings import Finding
from visprism.estimates.text import points_text, text_of
from visprism.loss.density import traces_by_part
from visprism.passes.ablated import ablated_outcomes
from visprism.passes.blocks import block_columns
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar
from visprism.table.shapes import SeriesPerBlock

_TRACE_IMAGES = 32  # training images of the Hessian traces, at most
_VECTORS = "random vectors"


@result_type("quantization-sensitivity")
class QuantizationSensitivity(SeriesPerBlock):
    """Accuracy and NLL with the weights of one block quantized; a row for each block and bits.

    Intervals of drops are Bonett and Price's. Hessian traces are of the training loss;
    intervals of traces and of predicted rises are over random vectors.
    """

    value_name: ClassVar[str] = "nll_rise"
    series_name: ClassVar[str] = "bits"
    row_names: ClassVar[tuple[str, ...]] = ("bits",)

    bits: Texts = column("Bits", "", "of the weights of the block: '8 bits', ...")
    nll_rise: Estimated = estimate(
        "NLL rise", "nats", "NLL with the quantized block minus the model's NLL"
    )
    accuracy: np.ndarray = column("Accuracy", "", "with the quantized block")
    drop: Estimated = estimate(
        "Accuracy drop",
        POINTS,
        "accuracy of the model minus that with the quantized block",
        question=questions.QUANTIZATION,
        comparison="none",  # selected maxima of different blocks
    )
    weight_error: np.ndarray = column(
        "Relative weight error",
        "",
        "squared norm of the rounding over squared norm of the weights",
    )
    trace: Estimated = estimate(
        "Hessian trace",
        "",
        "of the training loss with respect to the weights of the block",
        over=_VECTORS,
    )
    predicted_rise: Estimated = estimate(
        "NLL rise predicted by the Hessian trace",
        "nats",
        "trace / (2 x number of weights) times the squared norm of the rounding",
        over=_VECTORS,
    )
    baseline_accuracy: float = scalar("Baseline accuracy", "", "accuracy of the model")
    baseline_nll: float = scalar("Baseline NLL", "nats", "NLL of the model")
    probes: int = scalar("Random vectors", "", "of each Hessian trace", default=0)
    without_traces: str = scalar(
        "Without Hessian traces", "", "why there are none; empty if there are", default=""
    )

    def sentences(self) -> Iterator[str | Finding]:
        """For each number of bits the largest NLL rise and its drop; and the predictions."""
        for name, rows in self.series().items():
            worst = int(rows[self.values[rows].argmax()])
            significant = int((self.nll_rise.low[rows] > 0).sum())
            drop = self.drop[worst]
            yield (
                f"weights of one block at {name}: NLL rises significantly in {significant} of "
                f"{len(rows)} blocks; largest rise of {len(rows)}: {self._interval(worst)} at "
                f"{self.block[worst]}, accuracy drop there "
                f"{points_text(drop)} from {self.baseline_accuracy:.1%}; "
                f"intervals over {self.units_text}"
            )
        yield from self._predictions()

    def _predictions(self) -> list[str]:
        """The block with the largest trace, and how the predicted rises rank the blocks."""
        rows = next(iter(self.series().values()), np.array([], dtype=int))
        traces = np.asarray(self.trace)[rows]
        if not np.isfinite(traces).any():
            reason = self.without_traces
            return [f"no Hessian traces of the weights: {reason}"] if reason else []
        largest = int(rows[np.nanargmax(traces)])
        texts = [
            f"largest Hessian trace of the weights of {len(rows)} blocks: "
            f"{text_of(self.trace[largest])} at {self.block[largest]}; interval over "
            f"{self.probes} {_VECTORS}"
        ]
        predicted = np.asarray(self.predicted_rise)
        ranks = [
            f"{rank_correlation(predicted[rows], self.values[rows]):.2f} at {name}"
            for name, rows in self.series().items()
            if len(rows) > 2
        ]
        if ranks:
            texts.append(
                "rank correlation over blocks of the NLL rise and the rise that the Hessian "
                f"trace predicts: {', '.join(ranks)} (Spearman; no interval: blocks of one "
                "network are not independent)"
            )
        return texts

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


@ANALYSES.register
class Quantization(Analysis):
    """NLL rise after rounding one block to a few bits, with its Hessian trace."""

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
            figures={"": {}, "predicted": {"quantity": "predicted_rise"}},
        ),
    )

    bits: tuple[int, ...] = option(
        (8, 6, 4), "numbers of bits of a weight", minimum=2, maximum=16, quick=(4,)
    )
    trace_probes: int = option(
        5, "number of random vectors of each Hessian trace (0: no traces)", minimum=0, quick=3
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Quantize each block in turn, and estimate the Hessian traces."""
        anatomy = subject.anatomy
        blocks = [block for block in anatomy if weights_of(anatomy, block)]
        if not blocks:
            raise InputError(f"{type(anatomy.model).__name__} has no block with weights")
        traces, reason = self._traces(subject, run)
        rows = [(number, block) for number in self.bits for block in blocks]
        changes = np.array([_change(anatomy, block, number) for number, block in rows])
        rounding, squares, weights = changes.T
        with np.errstate(invalid="ignore"):
            weight_error = np.where(squares > 0, rounding / squares, nan)
        outcomes, _, origin = ablated_outcomes(
            anatomy,
            subject.batches(),
            [quantization(anatomy, block, number) for number, block in rows],
            label="quantization",
            run=run,
        )
        probes = max(map(len, traces.values()), default=0)
        none = np.full(max(probes, 1), nan)
        by_vector = np.stack([traces.get(block.name, none) for _, block in rows], axis=1)
        predicted = by_vector * rounding / (2 * weights)
        return (
            QuantizationSensitivity(
                **block_columns([block for _, block in rows]),
                bits=np.array([f"{number} bits" for number, _ in rows]),
                accuracy=outcomes.correct[:, 1:].mean(0),
                drop=mean(outcomes.drops, paired_proportion),
                nll_rise=mean(outcomes.rises),
                weight_error=weight_error,
                trace=mean(by_vector),
                predicted_rise=mean(predicted),
                probes=probes,
                without_traces=reason,
                baseline_accuracy=outcomes.accuracy,
                baseline_nll=outcomes.nll,
                provenance=origin,
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


def _change(anatomy: Anatomy, block: Block, bits: int) -> tuple[float, float, int]:
    """Squared norms of the weights' change and of the weights, and the number of weights."""
    parameters = dict(anatomy.model.named_parameters(remove_duplicate=False))
    weights = [parameters[n].detach().cpu().double() for n in weights_of(anatomy, block)]
    change = sum(float((quantized(w, bits) - w).square().sum()) for w in weights)
    total = sum(float(w.square().sum()) for w in weights)
    return change, total, sum(w.numel() for w in weights)
