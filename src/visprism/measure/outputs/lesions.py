"""Lesions: what a trained model loses when one of its parts is taken out, as a table."""

from dataclasses import dataclass

import numpy as np

from visprism.result import Result


@dataclass(frozen=True)
class Lesions(Result):
    """One row for each lesion; of several blocks at once the depth is NaN."""

    block: np.ndarray  # its name; of several, all of them, joined by "+"
    kind: np.ndarray  # "conv", "attention", ..., or "several"
    stage: np.ndarray  # 0 for the stem, then one more each time that the grid shrinks
    depth: np.ndarray  # 0 for the stem ... 1 for the last block before the head
    subsampling: np.ndarray  # whether its grid is smaller than that of the block before
    removed: np.ndarray  # "block", "convolution", "head 3", or "several"
    number: np.ndarray  # of blocks that were lesioned
    accuracy: np.ndarray  # without it
    drop: np.ndarray  # of the accuracy; above 0 where the model is worse without
    drop_error: np.ndarray  # standard error of the drop, paired by image
    nll: np.ndarray
    nll_rise: np.ndarray
    nll_rise_error: np.ndarray
    resumed: np.ndarray  # whether only what follows the lesion ran, or the whole model
    whole_accuracy: float = float("nan")  # of the model as it is
    whole_nll: float = float("nan")
    left_out: str = ""  # what could not be lesioned, and why

    @property
    def single(self) -> "Lesions":
        """The rows of one block each, heads apart."""
        return self.rows(np.isin(self.removed, ["block", "convolution"]))

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        found = []
        single = self.single
        if len(single.block):
            worst = int(single.drop.argmax())
            harmless = int((single.drop <= 1.96 * single.drop_error).sum())
            found.append(
                f"Without {single.block[worst]} ({single.kind[worst]}) accuracy falls most, by "
                f"{single.drop[worst]:.1%} ± {1.96 * single.drop_error[worst]:.1%} from "
                f"{self.whole_accuracy:.1%}; {harmless} of {len(single)} parts cost nothing "
                "that can be told from chance"
            )
        if not self.resumed.all():
            found.append(
                f"{(~self.resumed).sum()} of {len(self)} lesions ran the whole model, as it "
                "does not resume behind them"
            )
        return found
