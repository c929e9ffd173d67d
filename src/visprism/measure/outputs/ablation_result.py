"""Ablations: what a trained model loses when one of its parts is taken out, as a table."""

import numpy as np

from visprism.results.base import Result, column, result_type, scalar


@result_type("ablations", formerly="Lesions")
class Ablations(Result):
    """One row for each lesion; of several blocks at once the depth is NaN."""

    block: np.ndarray = column("Block", "", "its name; of several, all of them, joined by '+'")
    kind: np.ndarray = column("Kind", "", "'conv', 'attention', ..., or 'several'")
    stage: np.ndarray = column(
        "Stage", "", "0 for the stem, then one more each time that the grid shrinks"
    )
    depth: np.ndarray = column(
        "Depth", "", "0 for the stem ... 1 for the last block before the head"
    )
    subsampling: np.ndarray = column(
        "Subsampling", "", "whether its grid is smaller than that of the block before"
    )
    removed: np.ndarray = column(
        "Removed", "", "'block', 'convolution', 'head 3', or 'several'"
    )
    number: np.ndarray = column("Number", "", "of blocks that were lesioned")
    accuracy: np.ndarray = column("Accuracy", "", "without it")
    drop: np.ndarray = column(
        "Drop", "", "of the accuracy; above 0 where the model is worse without"
    )
    drop_error: np.ndarray = column(
        "Drop error", "", "standard error of the drop, paired by image"
    )
    nll: np.ndarray = column("Nll")
    nll_rise: np.ndarray = column("Rise of NLL")
    nll_rise_error: np.ndarray = column("Nll rise error")
    resumed: np.ndarray = column(
        "Resumed", "", "whether only what follows the lesion ran, or the whole model"
    )
    whole_accuracy: float = scalar(
        "Whole accuracy", "", "of the model as it is", default=float("nan")
    )
    whole_nll: float = scalar("Whole nll", default=float("nan"))
    left_out: str = scalar("Left out", "", "what could not be lesioned, and why", default="")

    @property
    def single(self) -> "Ablations":
        """The rows of one block each, heads apart."""
        return self.select(np.isin(self.removed, ["block", "convolution"]))

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
