"""Quantization sensitivity of blocks."""

from typing import ClassVar

import numpy as np

from visprism.core.statistics import rank_correlation, t_quantile
from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import interval_text, points_text
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import SeriesPerBlock


@result_type("quantization-sensitivity")
class QuantizationSensitivity(SeriesPerBlock):
    """Accuracy and NLL with the weights of one block quantized; a row for each block and bits.

    Weights are rounded to nearest on a symmetric grid for each output channel. Differences are
    paired by image; intervals of drops are those of Bonett and Price. Hessian traces are of the
    training loss; their intervals are over random vectors.
    """

    value_name: ClassVar[str] = "nll_rise"
    series_name: ClassVar[str] = "bits"

    bits: np.ndarray = column("Bits", "", "of the weights of the block: '8 bits', ...")
    nll_rise: np.ndarray = column(
        "NLL rise", "nats", "NLL with the quantized block minus that of the model"
    )
    nll_rise_error: np.ndarray = column(
        "Standard error of the NLL rise", "nats", "over images, paired"
    )
    accuracy: np.ndarray = column("Accuracy", "", "with the quantized block")
    drop: np.ndarray = column(
        "Accuracy drop", "", "accuracy of the model minus that with the quantized block"
    )
    drop_low: np.ndarray = column(
        "Accuracy drop, low", "", "lower end of the 95% interval over images"
    )
    drop_high: np.ndarray = column(
        "Accuracy drop, high", "", "upper end of the 95% interval over images"
    )
    weight_error: np.ndarray = column(
        "Relative weight error", "", "squared norm of the rounding over that of the weights"
    )
    trace: np.ndarray = column(
        "Hessian trace", "", "of the training loss with respect to the weights of the block"
    )
    trace_error: np.ndarray = column(
        "Standard error of the Hessian trace", "", "over random vectors"
    )
    predicted_rise: np.ndarray = column(
        "NLL rise predicted by the Hessian trace",
        "nats",
        "trace / (2 x number of weights) times the squared norm of the rounding",
    )
    predicted_rise_error: np.ndarray = column(
        "Standard error of the predicted NLL rise", "nats", "over random vectors"
    )
    baseline_accuracy: float = scalar("Baseline accuracy", "", "accuracy of the model")
    baseline_nll: float = scalar("Baseline NLL", "nats", "NLL of the model")
    probes: int = scalar("Random vectors", "", "of each Hessian trace", default=0)
    without_traces: str = scalar(
        "Without Hessian traces", "", "why there are none; empty if there are", default=""
    )

    def intervals_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Intervals of traces and predicted rises are over random vectors."""
        if name not in ("trace", "predicted_rise"):
            return super().intervals_of(name)
        values = np.asarray(getattr(self, name), dtype=float)
        margins = t_quantile(max(1, self.probes)) * getattr(self, f"{name}_error")
        return values - margins, values + margins

    def findings(self) -> tuple[Finding, ...]:
        """For each number of bits the largest NLL rise and its drop, named as a maximum."""
        texts = []
        for name, rows in self.series().items():
            worst = int(rows[self.nll_rise[rows].argmax()])
            significant = int((self.nll_rise - self.margins > 0)[rows].sum())
            drop = points_text(self.drop[worst], self.drop_low[worst], self.drop_high[worst])
            texts.append(
                f"weights of one block at {name}: NLL rises significantly in {significant} of "
                f"{len(rows)} blocks; largest rise of {len(rows)}: {self._interval(worst)} at "
                f"{self.block[worst]}, accuracy drop there {drop} from "
                f"{self.baseline_accuracy:.1%}; intervals over {self.units_text}"
                f"{', not adjusted for this selection' * (len(rows) > 1)}"
            )
        return (*map(Finding, texts), *self._predictions())

    def _predictions(self) -> tuple[Finding, ...]:
        """The block with the largest trace, and how the predicted rises rank the blocks."""
        rows = next(iter(self.series().values()), np.array([], dtype=int))
        if not np.isfinite(self.trace[rows]).any():
            if not self.without_traces:
                return ()
            return (Finding(f"no Hessian traces of the weights: {self.without_traces}"),)
        largest = int(rows[np.nanargmax(self.trace[rows])])
        low, high = (float(ends[largest]) for ends in self.intervals_of("trace"))
        trace = interval_text(float(self.trace[largest]), low, high)
        several = ", not adjusted for this selection" * (len(rows) > 1)
        text = (
            f"largest Hessian trace of the weights of {len(rows)} blocks: {trace} at "
            f"{self.block[largest]}; interval over {self.probes} random vectors{several}"
        )
        ranks = [
            f"{rank_correlation(self.predicted_rise[rows], self.nll_rise[rows]):.2f} at {name}"
            for name, rows in self.series().items()
            if len(rows) > 2
        ]
        if not ranks:
            return (Finding(text),)
        return (
            Finding(text),
            Finding(
                "rank correlation over blocks of the NLL rise and the rise that the Hessian "
                f"trace predicts: {', '.join(ranks)} (Spearman; no interval: blocks of one "
                "network are not independent)"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The largest accuracy drop at each number of bits, a selected maximum."""
        answers = []
        for name, rows in self.series().items():
            worst = int(rows[self.drop[rows].argmax()])
            answers.append(
                Answer(
                    question=questions.QUANTIZATION.text,
                    quantity=f"largest accuracy drop, one block at {name}",
                    value=float(self.drop[worst]),
                    low=float(self.drop_low[worst]),
                    high=float(self.drop_high[worst]),
                    unit=POINTS,
                    over="images",
                    selected=len(rows),
                )
            )
        return tuple(answers)
