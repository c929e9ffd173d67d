"""Quantization sensitivity of blocks."""

from typing import ClassVar

import numpy as np

from visprism.results import questions
from visprism.results.answers import POINTS, Answer
from visprism.results.base import column, result_type, scalar
from visprism.results.findings import Finding
from visprism.results.shapes import SeriesPerBlock
from visprism.results.text import points_text


@result_type("quantization-sensitivity")
class QuantizationSensitivity(SeriesPerBlock):
    """Accuracy and NLL with the weights of one block quantized; a row for each block and bits.

    Weights are rounded to nearest on a symmetric grid for each output channel. Differences are
    paired by image; intervals of drops are those of Bonett and Price.
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
        "Accuracy drop, low", "", "lower end of the 95 % interval over images"
    )
    drop_high: np.ndarray = column(
        "Accuracy drop, high", "", "upper end of the 95 % interval over images"
    )
    weight_error: np.ndarray = column(
        "Relative weight error", "", "squared norm of the rounding over that of the weights"
    )
    baseline_accuracy: float = scalar("Baseline accuracy", "", "accuracy of the model")
    baseline_nll: float = scalar("Baseline NLL", "nats", "NLL of the model")

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
        return tuple(map(Finding, texts))

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
