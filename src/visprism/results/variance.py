"""Variance of feature maps over positions, by block.

Source: Park and Kim (2022), How do vision transformers work?, fig. 9.
"""

from typing import Any, ClassVar

import numpy as np

from visprism.core.statistics import t_quantile
from visprism.results.base import column, result_type
from visprism.results.findings import Finding
from visprism.results.fourier import gaps
from visprism.results.kind_summary import (
    SCALE_FREE,
    VARIANCE,
    KindSummary,
    Quantity,
    summarize,
)
from visprism.results.shapes import ScalarPerBlock
from visprism.results.text import images_text

PROJECTIONS = 8  # random ones, by which the change of the features is estimated
_NAMED = 3  # blocks that a finding names
_UNCHANGED = 1e-6  # relative change of features that is rounding
_NEW = (
    "log_ratio", "log_ratio_error", "relative_log_ratio", "relative_log_ratio_error",
    "kind_log_ratio_error", "kind_relative_log_ratio_error", "dead_channels",
)  # fmt: skip


def _upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """Files of 0.1 have no ratios in logs and no dead channels."""
    rows = len(values["block"])
    return (
        {name: np.full(rows, np.nan) for name in _NEW}
        | {name: np.full(rows, "") for name in ("previous", "between")}
        | values
    )


def _without_features(values: dict[str, Any]) -> dict[str, Any]:
    """Files of schema 1 have no change of the features."""
    return {"feature_change": np.full(len(values["block"]), np.nan)} | values


def _without_projections(values: dict[str, Any]) -> dict[str, Any]:
    """Files of schema 2 have no standard error of the change of the features."""
    return {"feature_change_error": np.full(len(values["block"]), np.nan)} | values


@result_type(
    "variances",
    schema=3,
    upgrades={0: _upgrade, 1: _without_features, 2: _without_projections},
)
class Variances(ScalarPerBlock):
    """Feature-map variance; one row for each block. NaN where a map has only one position."""

    value_name: ClassVar[str] = "variance"

    variance: np.ndarray = column(
        "Feature-map variance", "", "over positions, unbiased; mean over channels and images"
    )
    variance_error: np.ndarray = column(
        "Standard error of the variance", "", "over images; NaN for one image"
    )
    relative: np.ndarray = column(
        "Variance / mean square", "", "mean variance over mean square: does not depend on scale"
    )
    relative_error: np.ndarray = column(
        "Standard error of variance / mean square", "", "over images, by the delta method"
    )
    change: np.ndarray = column(
        "Relative change of the variance",
        "",
        "variance over that of the previous block, minus 1; NaN if grids differ",
    )
    change_error: np.ndarray = column(
        "Standard error of the relative change", "", "over images, by the delta method, paired"
    )
    log_ratio: np.ndarray = column(
        "Change of log variance",
        "",
        "mean over images of the log of the variance over that of the previous block",
    )
    log_ratio_error: np.ndarray = column(
        "Standard error of the change of log variance", "", "over images, paired"
    )
    relative_log_ratio: np.ndarray = column(
        "Change of log(variance / mean square)",
        "",
        "mean over images, minus that of the previous block; does not depend on scale",
    )
    relative_log_ratio_error: np.ndarray = column(
        "Standard error of the change of log(variance / mean square)", "", "over images, paired"
    )
    kind_log_ratio_error: np.ndarray = column(
        "Standard error of the kind's mean change of log variance",
        "",
        "over images, of the mean over blocks of one kind",
    )
    kind_relative_log_ratio_error: np.ndarray = column(
        "Standard error of the kind's mean change of log(variance / mean square)",
        "",
        "over images, of the mean over blocks of one kind",
    )
    feature_change: np.ndarray = column(
        "Change of the features",
        "",
        "root mean square of output minus input over that of the input, estimated by 8 random "
        "projections; NaN if the shapes differ",
    )
    feature_change_error: np.ndarray = column(
        "Standard error of the change of the features", "", "over the 8 random projections"
    )
    dead_channels: np.ndarray = column(
        "Dead channels", "", "fraction of channels that are 0 everywhere in all images"
    )
    previous: np.ndarray = column(
        "Previous block", "", "block that the changes refer to; empty if there is none"
    )
    between: np.ndarray = column(
        "Blocks between", "", "blocks between the two that do not lie on a grid; usually empty"
    )

    @property
    def feature_change_low(self) -> np.ndarray:
        """Lower end of the 95% interval of the change of the features, over projections."""
        margin = t_quantile(PROJECTIONS) * self.feature_change_error
        return np.maximum(self.feature_change - margin, 0)

    @property
    def feature_change_high(self) -> np.ndarray:
        """Upper end of the 95% interval of the change of the features, over projections."""
        return self.feature_change + t_quantile(PROJECTIONS) * self.feature_change_error

    def summarize_by_kind(self) -> KindSummary:
        """Change of the variance across the blocks of each kind, in logs.

        Both the variance and the scale-free variance over mean square are given, for the scale
        of the residual stream grows with depth. Counted are blocks on the grid of the previous
        block with no block off the grid between them; blocks that subsample are left out.
        Intervals are over images.
        """
        quantities = Quantity(VARIANCE, "log_ratio"), Quantity(SCALE_FREE, "relative_log_ratio")
        return summarize(self, quantities, self.between)

    def findings(self) -> tuple[Finding, ...]:
        """Dead channels, blocks that change nothing, and changes across blocks off the grid."""
        findings = list(gaps(self.block, self.previous, self.between))
        dead = np.flatnonzero(self.dead_channels > 0)
        if len(dead):
            parts = [f"{self.block[i]} {self.dead_channels[i]:.1%}" for i in dead]
            images = images_text(self.provenance.images, self.provenance.split)
            findings.append(
                Finding(
                    f"dead channels (0 everywhere in {images}) in {len(dead)} of {len(self)} "
                    f"blocks: {_few(parts)}",
                    "VP108",
                )
            )
        idle = np.flatnonzero(self.feature_change < _UNCHANGED)
        if len(idle):
            findings.append(
                Finding(
                    f"blocks that change nothing: {len(idle)} "
                    f"({_few([str(self.block[i]) for i in idle])}). Residual branches that "
                    "still end in zeros, as many libraries initialize them, do that",
                    "VP109",
                )
            )
        return tuple(findings)


def _few(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
