"""Transfer function of residual branches: what a branch passes on at each spatial frequency.

With L the log amplitude of a feature map by frequency (`passes.profiles`), the log gain
of a branch is L(output) - L(input), for the same image. A block that adds a branch to its input
can lower the high frequencies of the sum although its branch raises them, and the other way
round. The references are the same as in `Fourier`.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from visprism import kit
from visprism.analyses.features import fourier
from visprism.drawing.depth import depth_bar, spectra
from visprism.passes.profiles import NO_AMPLITUDE
from visprism.passes.sources import BranchEnd, residual_branches
from visprism.table.kinds import GAIN_TO_LOWEST, GAIN_TO_MEAN, KindSummary, summarize_by_kind
from visprism.table.shapes import result_shape

_NAMES = ("gain", "relative", "relative_lowest")


@result_shape
class TransferColumns(kit.PerBlock):
    """The columns that the gains and a `HighFrequencyGain` share."""

    frequency: np.ndarray = kit.column(
        "Frequency", "π rad/pixel", "0 is the mean, 1 the Nyquist frequency"
    )
    gain: kit.Estimated = kit.estimate(
        "Log gain", "", "log amplitude of the branch's output minus its input's"
    )
    relative: kit.Estimated = kit.estimate(
        "Δ log gain", "", "log gain minus that at frequency 0 (the mean)"
    )
    relative_lowest: kit.Estimated = kit.estimate(
        "Δ log gain to the lowest frequency",
        "",
        "log gain minus that at the lowest frequency that is not 0; NaN if there is only one",
    )
    profile: str = kit.scalar(
        "Profile",
        "",
        "'diagonal': frequencies along the diagonal; 'radial': mean over directions",
        default="diagonal",
    )


@kit.result("branch-transfer", "Transfer function of residual branches", table=False)
class BranchGains(TransferColumns):
    """Log gain of each residual branch by spatial frequency; one row for each pair.

    Each curve is a residual branch: the log amplitude of its output minus its input's,
    before the sum, at each spatial frequency. A falling curve is a low-pass filter.
    """


@kit.result("high-frequency-gain", "High-frequency gain of residual branches")
class HighFrequencyGain(kit.ScalarPerBlock, TransferColumns):
    """Log gain at the highest frequency; one row for each residual branch.

    Each point is a branch: its log gain at the highest frequency minus that at the lowest
    frequency that is not 0.
    """

    value_name = "relative_lowest"


@kit.analysis
class BranchTransfer(kit.FeatureAnalysis):
    """Transfer function of residual branches: output over input by spatial frequency."""

    name = "branch-transfer"
    source = "Park & Kim (2022), sec. 3.1; measured before the sum"
    claims = ("C6",)
    default = False
    sees = "residual branches"
    gives = (
        BranchGains,
        HighFrequencyGain,
        KindSummary,
    )

    profile: Literal["diagonal", "radial"] = kit.option(
        "diagonal", "frequencies along the diagonal, or averaged over directions"
    )

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Without residual branches, or on grids that have no such profile."""
        branches = residual_branches(subject.anatomy)
        if not branches:
            return "the model has no residual branch with an identity shortcut"
        return super().inapplicable(subject) or fourier.without_profile(
            fourier.PROFILES[self.profile, "default"][0], [branch.block for branch in branches]
        )

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, "b k"]]:
        """Log amplitude by image and frequency, mean over channels; of one end of a branch."""
        measure, _ = fourier.PROFILES[self.profile, "default"]
        return {"log_amplitude": measure(x)}

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The transfer functions, their highest frequency, and that by kind of block.

        A gain is NaN for an image to which the branch adds nothing.
        """
        levels = seen.each("log_amplitude")
        for level in levels.values():
            level[np.isclose(level, NO_AMPLITUDE)] = np.nan
        blocks = [end.block for end in levels if end.end == "output"]
        ends = [[levels[BranchEnd(b, end)] for end in ("output", "input")] for b in blocks]
        gains = [fourier.references(output - given) for output, given in ends]
        _, frequency = fourier.PROFILES[self.profile, "default"]
        transfer = BranchGains(
            **fourier.columns_by_frequency(blocks, frequency, _NAMES, gains),
            profile=self.profile,
        )
        _, to_mean, to_lowest = fourier.at_highest(gains)
        by_kind = summarize_by_kind(
            {GAIN_TO_MEAN: to_mean, GAIN_TO_LOWEST: to_lowest},
            [block.kind for block in blocks],
            np.array([not block.subsampling for block in blocks]),
        )
        return transfer, fourier.highest_rows(transfer, HighFrequencyGain), by_kind


@kit.figure(width=2.5, height=2.3, key=depth_bar, key_width=0.75)
def _(result: BranchGains, ax: Axes) -> Axes:
    """Log gain by frequency, a curve per residual branch, colored by depth."""
    spectra(ax, result, "gain")
    ax.set(
        xlabel=f"{fourier.AXES[result.profile]} (π rad/pixel)", ylabel="Log gain of the branch"
    )
    return ax
