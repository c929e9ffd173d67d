"""Intrinsic dimension of the features of blocks."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import ScalarPerBlock


@result_type("intrinsic-dimension")
class IntrinsicDimensions(ScalarPerBlock):
    """TwoNN estimate of the intrinsic dimension of pooled features; a row for each block.

    The interval is over images, for 200 or more; it does not include the bias of the estimate.
    """

    value_name: ClassVar[str] = "dimension"

    dimension: np.ndarray = column(
        "Intrinsic dimension", "", "TwoNN estimate from distances to the two nearest neighbors"
    )
    low: np.ndarray = column("Low", "", "lower end of the 95% interval over images")
    high: np.ndarray = column("High", "", "upper end of the 95% interval over images")
    width: np.ndarray = column("Width", "", "number of channels of the pooled features")
    distinct: np.ndarray = column(
        "Distinct images", "", "images without an exact copy, which the estimate uses"
    )
    pooling: str = scalar("Pooling", "", "of the features: 'mean', 'class' or 'both'")

    @property
    def intervals(self) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
        """Ends of the intervals, which are symmetric in the logarithm."""
        return self.low, self.high
